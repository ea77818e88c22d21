/* Test double: kernels, copies, and a gate that holds a stream until the test lets go. */
#define _GNU_SOURCE
#include "sim.h"

#include <pthread.h>
#include <string.h>

static _Thread_local const char *label;
static _Atomic uint64_t launches;

static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_opened = PTHREAD_COND_INITIALIZER;
static uint64_t gates_open; /* gates below this number are open */
static uint64_t gates_made, opened_ns;

void sim_label(const char *text)
{
    label = text;
}

static void take_time(struct sim_stream *stream, struct sim_op *op)
{
    uint64_t *time_ns = sim_stream_time(stream);
    /* For ever is until the device is reset, also where the kernel had not begun by then. */
    while (op->length_ns == SIM_FOR_EVER && op->epoch == sim_device_epoch())
        sim_pause();
    if (op->length_ns != SIM_FOR_EVER)
        *time_ns += op->length_ns;
    sim_sleep_until(*time_ns);
}

static void copy(struct sim_stream *stream, struct sim_op *op)
{
    take_time(stream, op);
    memmove(op->to, op->from, op->bytes);
}

static void fill(struct sim_stream *stream, struct sim_op *op)
{
    take_time(stream, op);
    memset(op->to, (int)op->number, op->bytes);
}

static void hold(struct sim_stream *stream, struct sim_op *op)
{
    pthread_mutex_lock(&gate_lock);
    while (op->number >= gates_open)
        pthread_cond_wait(&gate_opened, &gate_lock);
    /* The same for all streams, however late the machine lets each of their threads run. */
    uint64_t *time_ns = sim_stream_time(stream);
    if (*time_ns < opened_ns)
        *time_ns = opened_ns;
    pthread_mutex_unlock(&gate_lock);
}

int sim_launch(void *stream, uint64_t length_ns)
{
    uint64_t number = atomic_fetch_add_explicit(&launches, 1, memory_order_relaxed);
    int error = sim_fails("launch", number);
    if (error != SIM_OK)
        return error;
    sim_count(SIM_LAUNCHES, 1);
    if (sim_stalls("kernel", -1, number))
        length_ns = SIM_FOR_EVER;
    if (length_ns == 0 && sim_is_idle(stream))
        return sim_usable();
    return sim_enqueue(stream, &(struct sim_op){.body = take_time,
                                                .label = label != NULL ? label : "launch",
                                                .length_ns = length_ns,
                                                .number = number});
}

int sim_copy(void *stream, void *to, const void *from, uint64_t bytes)
{
    return sim_enqueue(stream, &(struct sim_op){.body = copy,
                                                .label = "memcpy_async",
                                                .length_ns = sim_length(SIM_LENGTH_COPY),
                                                .bytes = bytes,
                                                .to = to,
                                                .from = from});
}

int sim_fill(void *stream, void *to, int value, uint64_t bytes)
{
    return sim_enqueue(stream, &(struct sim_op){.body = fill,
                                                .label = "memset_async",
                                                .length_ns = sim_length(SIM_LENGTH_COPY),
                                                .bytes = bytes,
                                                .to = to,
                                                .number = (uint64_t)value});
}

int sim_hold(void *stream)
{
    pthread_mutex_lock(&gate_lock);
    uint64_t number = gates_made++;
    pthread_mutex_unlock(&gate_lock);
    return sim_enqueue(stream, &(struct sim_op){.body = hold, .number = number});
}

void sim_let_go(void)
{
    pthread_mutex_lock(&gate_lock);
    gates_open = gates_made;
    opened_ns = sim_now_ns();
    pthread_cond_broadcast(&gate_opened);
    pthread_mutex_unlock(&gate_lock);
}
