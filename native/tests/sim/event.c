/* Test double: events. Memory of destroyed ones is kept for new events and never given back, so that
 * the use of a destroyed one is seen and counted. */
#define _GNU_SOURCE
#include "sim.h"

#include <pthread.h>
#include <stdlib.h>

enum { MAGIC = 0x544e5645, DEAD = 0x44414544 };

struct sim_event {
    _Atomic uint32_t magic;
    uint32_t epoch;
    _Atomic uint64_t recorded,
        passed; /* numbers of the newest record, and of the newest that passed */
    _Atomic uint64_t time_ns;
    _Atomic(struct sim_graph *) capture; /* recorded into this capture */
    struct sim_event *next;              /* among the spare ones */
    struct sim_event *older;             /* of all that were made */
};

static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_event *spare;
static _Atomic(struct sim_event *)
    newest; /* so that whoever forgets an event has not lost memory */

static struct sim_event *event_of(void *handle)
{
    struct sim_event *event = handle;
    if (event != NULL && atomic_load(&event->magic) == MAGIC && event->epoch == sim_device_epoch())
        return event;
    sim_count(SIM_MISUSES, 1);
    return NULL;
}

static struct sim_event *make(void)
{
    struct sim_event *made = calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    made->older = atomic_load(&newest);
    while (!atomic_compare_exchange_weak(&newest, &made->older, made))
        ;
    return made;
}

int sim_event_create(struct sim_event **event)
{
    /* Stricter than the real ones need be. */
    int error = sim_usable() != SIM_OK ? sim_usable() : sim_forbidden_in_capture();
    if (error != SIM_OK)
        return error;
    pthread_mutex_lock(&spare_lock);
    struct sim_event *made = spare;
    if (made != NULL)
        spare = made->next;
    pthread_mutex_unlock(&spare_lock);
    if (made == NULL)
        made = make();
    if (made == NULL)
        return SIM_BAD_VALUE;
    made->epoch = sim_device_epoch();
    atomic_store(&made->recorded, 0);
    atomic_store(&made->passed, 0);
    atomic_store(&made->capture, NULL);
    atomic_store(&made->magic, MAGIC);
    sim_count(SIM_EVENTS, 1);
    *event = made;
    return SIM_OK;
}

int sim_event_destroy(void *handle)
{
    struct sim_event *event = event_of(handle);
    if (event == NULL)
        return SIM_BAD_HANDLE;
    atomic_store(&event->magic, DEAD);
    sim_count(SIM_EVENTS, -1);
    /* One that is still to be recorded is left for good: its stream writes to it. */
    if (atomic_load(&event->passed) == atomic_load(&event->recorded)) {
        pthread_mutex_lock(&spare_lock);
        event->next = spare;
        spare = event;
        pthread_mutex_unlock(&spare_lock);
    }
    return SIM_OK;
}

static void pass(struct sim_stream *stream, struct sim_op *op)
{
    struct sim_event *event = op->object;
    atomic_store(&event->time_ns, *sim_stream_time(stream));
    atomic_store(&event->passed, op->number);
}

int sim_event_record(void *handle, void *stream)
{
    struct sim_event *event = event_of(handle);
    if (event == NULL || sim_stream_of(stream) == NULL)
        return SIM_BAD_HANDLE;
    struct sim_op op = {.body = pass, .object = event, .is_event = true};
    struct sim_graph *capture = atomic_load(sim_stream_capture(sim_stream_of(stream)));
    atomic_store(&event->capture, capture);
    if (capture != NULL)
        return sim_enqueue(stream, &op);
    op.number = atomic_fetch_add(&event->recorded, 1) + 1;
    if (!sim_is_idle(stream))
        return sim_enqueue(stream, &op);
    atomic_store(&event->time_ns, sim_now_ns());
    atomic_store(&event->passed, op.number);
    return sim_usable();
}

int sim_event_query(void *handle)
{
    struct sim_event *event = event_of(handle);
    if (event == NULL)
        return SIM_BAD_HANDLE;
    int forbidden = sim_forbidden_in_capture();
    if (forbidden != SIM_OK)
        return forbidden;
    return atomic_load(&event->passed) >= atomic_load(&event->recorded) ? SIM_OK : SIM_NOT_READY;
}

int sim_event_synchronize(void *handle)
{
    int state = sim_event_query(handle);
    for (; state == SIM_NOT_READY; state = sim_event_query(handle))
        sim_pause();
    return state;
}

int sim_event_elapsed(float *milliseconds, void *from, void *to)
{
    struct sim_event *first = event_of(from), *second = event_of(to);
    if (first == NULL || second == NULL || atomic_load(&first->recorded) == 0 ||
        atomic_load(&second->recorded) == 0)
        return SIM_BAD_HANDLE;
    if (atomic_load(&first->passed) < atomic_load(&first->recorded) ||
        atomic_load(&second->passed) < atomic_load(&second->recorded))
        return SIM_NOT_READY;
    int64_t difference = (int64_t)(atomic_load(&second->time_ns) - atomic_load(&first->time_ns));
    *milliseconds = (float)((double)difference / 1e6);
    return SIM_OK;
}

static void wait_for(struct sim_stream *stream, struct sim_op *op)
{
    struct sim_event *event = op->object;
    while (atomic_load(&event->passed) < op->number)
        sim_pause();
    if (*sim_stream_time(stream) < atomic_load(&event->time_ns))
        *sim_stream_time(stream) = atomic_load(&event->time_ns);
}

int sim_stream_wait_event(void *stream, void *handle)
{
    struct sim_event *event = event_of(handle);
    if (event == NULL || sim_stream_of(stream) == NULL)
        return SIM_BAD_HANDLE;
    struct sim_graph *capture = atomic_load(&event->capture);
    if (capture != NULL) { /* the stream joins the capture, and one after another is order enough */
        atomic_store(sim_stream_capture(sim_stream_of(stream)), capture);
        return SIM_OK;
    }
    return sim_enqueue(stream, &(struct sim_op){.body = wait_for,
                                                .object = event,
                                                .number = atomic_load(&event->recorded)});
}
