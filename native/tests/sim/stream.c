/* Test double: streams. One thread each, started with the first work that takes time. */
#define _GNU_SOURCE
#include "sim.h"

#include <pthread.h>
#include <stdlib.h>

enum { QUEUE = 1024, MAGIC = 0x57524d53, DEAD = 0x44414544, STACK_BYTES = 256 << 10 };

struct sim_stream {
    uint32_t magic;
    int number;
    bool is_default, started, ending;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    _Atomic uint64_t put, done; /* works enqueued and over */
    struct sim_op queue[QUEUE];
    uint64_t time_ns;
    _Atomic(struct sim_graph *) capture;
    struct sim_stream *next;
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_stream *all; /* newest first; never freed, so that misuse can be told */
static int numbers;
static struct sim_stream default_stream = {.magic = MAGIC,
                                           .is_default = true,
                                           .lock = PTHREAD_MUTEX_INITIALIZER,
                                           .changed = PTHREAD_COND_INITIALIZER};
static _Thread_local struct sim_stream *own_default;

static struct sim_stream *make(void)
{
    struct sim_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return NULL;
    stream->magic = MAGIC;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    pthread_mutex_lock(&all_lock);
    stream->number = ++numbers;
    stream->next = all;
    all = stream;
    pthread_mutex_unlock(&all_lock);
    return stream;
}

struct sim_stream *sim_stream_of(void *handle)
{
    if ((uintptr_t)handle <= 1)
        return &default_stream;
    if ((uintptr_t)handle == 2) {
        if (own_default == NULL)
            own_default = make();
        return own_default;
    }
    struct sim_stream *stream = handle;
    if (stream->magic == MAGIC)
        return stream;
    sim_count(SIM_MISUSES, 1);
    return NULL;
}

int sim_stream_create(struct sim_stream **stream)
{
    if (sim_usable() != SIM_OK)
        return sim_usable();
    *stream = make();
    sim_count(SIM_STREAMS, 1);
    return *stream != NULL ? SIM_OK : SIM_BAD_VALUE;
}

struct sim_stream *sim_stream_next(struct sim_stream *after)
{
    pthread_mutex_lock(&all_lock);
    struct sim_stream *next = after == NULL              ? &default_stream
                              : after == &default_stream ? all
                                                         : after->next;
    pthread_mutex_unlock(&all_lock);
    return next;
}

_Atomic(struct sim_graph *) *sim_stream_capture(struct sim_stream *stream)
{
    return &stream->capture;
}

bool sim_stream_is_default(const struct sim_stream *stream)
{
    return stream->is_default;
}

bool sim_stream_is_captured(void *handle)
{
    struct sim_stream *stream = sim_stream_of(handle);
    return stream != NULL && atomic_load(&stream->capture) != NULL;
}

uint64_t *sim_stream_time(struct sim_stream *stream)
{
    return &stream->time_ns;
}

int sim_stream_number(const struct sim_stream *stream)
{
    return stream->number;
}

static void perform(struct sim_stream *stream, struct sim_op *op)
{
    if (stream->time_ns < op->enqueue_ns)
        stream->time_ns = op->enqueue_ns;
    uint64_t start_ns = stream->time_ns;
    op->body(stream, op);
    if (op->label != NULL)
        sim_trace(op->label, stream->number, start_ns, stream->time_ns, op->bytes);
    if (op->drop != NULL)
        op->drop(op);
}

static void *work(void *argument)
{
    struct sim_stream *stream = argument;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        uint64_t done = atomic_load(&stream->done);
        while (done == atomic_load(&stream->put)) {
            if (stream->ending) {
                pthread_mutex_unlock(&stream->lock);
                return NULL;
            }
            pthread_cond_wait(&stream->changed, &stream->lock);
        }
        pthread_mutex_unlock(&stream->lock);
        perform(stream, &stream->queue[done % QUEUE]);
        pthread_mutex_lock(&stream->lock);
        atomic_store(&stream->done, done + 1);
        pthread_cond_broadcast(&stream->changed);
    }
}

static bool start(struct sim_stream *stream)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    stream->started = pthread_create(&thread, &attributes, work, stream) == 0;
    pthread_attr_destroy(&attributes);
    return stream->started;
}

int sim_enqueue(void *handle, const struct sim_op *op)
{
    struct sim_stream *stream = sim_stream_of(handle);
    if (stream == NULL)
        return SIM_BAD_HANDLE;
    if (sim_usable() != SIM_OK)
        return sim_usable();
    if (sim_captured(stream, op))
        return SIM_OK;
    pthread_mutex_lock(&stream->lock);
    if (!stream->started && !start(stream)) {
        pthread_mutex_unlock(&stream->lock);
        return SIM_BAD_VALUE;
    }
    uint64_t put = atomic_load(&stream->put);
    while (put - atomic_load(&stream->done) == QUEUE) {
        pthread_cond_wait(&stream->changed, &stream->lock);
        put = atomic_load(&stream->put);
    }
    struct sim_op *place = &stream->queue[put % QUEUE];
    *place = *op;
    place->enqueue_ns = sim_now_ns();
    place->epoch = sim_device_epoch();
    atomic_store(&stream->put, put + 1);
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return SIM_OK;
}

bool sim_is_idle(void *handle)
{
    struct sim_stream *stream = sim_stream_of(handle);
    return stream != NULL && atomic_load_explicit(&stream->capture, memory_order_relaxed) == NULL &&
           atomic_load_explicit(&stream->done, memory_order_acquire) ==
               atomic_load_explicit(&stream->put, memory_order_acquire);
}

static void wait_for(struct sim_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    uint64_t put = atomic_load(&stream->put);
    while (atomic_load(&stream->done) < put)
        pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
}

int sim_stream_synchronize(void *handle)
{
    struct sim_stream *stream = sim_stream_of(handle);
    if (stream == NULL)
        return SIM_BAD_HANDLE;
    if (sim_usable() != SIM_OK)
        return sim_usable();
    int forbidden = sim_forbidden_in_capture();
    if (forbidden == SIM_OK)
        wait_for(stream);
    return forbidden;
}

int sim_stream_query(void *handle)
{
    struct sim_stream *stream = sim_stream_of(handle);
    if (stream == NULL)
        return SIM_BAD_HANDLE;
    int forbidden = sim_forbidden_in_capture();
    if (forbidden != SIM_OK)
        return forbidden;
    return atomic_load(&stream->done) == atomic_load(&stream->put) ? SIM_OK : SIM_NOT_READY;
}

int sim_stream_destroy(void *handle)
{
    struct sim_stream *stream = (uintptr_t)handle > 2 ? sim_stream_of(handle) : NULL;
    if (stream == NULL)
        return SIM_BAD_HANDLE;
    pthread_mutex_lock(&stream->lock);
    stream->magic = DEAD;
    stream->ending = true; /* after what is queued, as CUDA does */
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    sim_count(SIM_STREAMS, -1);
    return SIM_OK;
}

int sim_device_synchronize(void)
{
    if (sim_usable() != SIM_OK)
        return sim_usable();
    int forbidden = sim_forbidden_in_capture();
    if (forbidden != SIM_OK)
        return forbidden;
    for (struct sim_stream *at = sim_stream_next(NULL); at != NULL; at = sim_stream_next(at))
        wait_for(at);
    return SIM_OK;
}
