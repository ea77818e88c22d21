/* A stream works in order, so only its oldest operation needs asking; streams overtake each other as
 * they like. */
#define _GNU_SOURCE
#include "stream_queues.h"

#include <stddef.h>

#include "core/clock.h"
#include "device_clock.h"
#include "pending.h"

/* Streams beyond these share the last queue, which is then slower to notice an end, no more. */
enum { QUEUES = 64, SHOWN_QUEUES = 16 };

struct stream_queue {
    void *stream;
    int32_t context;
    uint32_t head, tail; /* index + 1, 0 = empty */
    struct rk_slot *slot;
    bool shown;
};

static struct stream_queue queues[QUEUES];
static int queues_used; /* queues at and above this are empty */

static struct stream_queue *queue_for(const struct rk_pending *entry)
{
    int32_t context = rk_pairs[entry->pair].context;
    struct stream_queue *empty = NULL;
    for (int i = 0; i < queues_used; i++) {
        struct stream_queue *queue = &queues[i];
        if (queue->head == 0)
            empty = empty != NULL ? empty : queue;
        else if (queue->stream == entry->stream && queue->context == context)
            return queue;
    }
    if (empty == NULL && queues_used < QUEUES)
        empty = &queues[queues_used++];
    if (empty == NULL)
        return &queues[QUEUES - 1];
    empty->stream = entry->stream;
    empty->context = context;
    return empty;
}

static void take_in(void)
{
    uint32_t at = rk_pending_collect();
    while (at != 0) {
        struct rk_pending *entry = &rk_pending[at - 1];
        uint32_t next = entry->behind;
        struct stream_queue *queue = queue_for(entry);
        entry->behind = 0;
        if (queue->head == 0)
            queue->head = at;
        else
            rk_pending[queue->tail - 1].behind = at;
        queue->tail = at;
        at = next;
    }
}

static struct rk_slot *slot_of(struct stream_queue *queue)
{
    if (queue->slot == NULL)
        queue->slot = rk_device_slot();
    return queue->slot;
}

static void show(struct stream_queue *queue, const struct rk_pending *entry)
{
    if (queue - queues >= SHOWN_QUEUES || slot_of(queue) == NULL)
        return;
    queue->shown = true;
    rk_device_show(queue->slot, &entry->op);
}

static void place_in_time(struct rk_pending *entry)
{
    struct rk_op *op = &entry->op;
    struct rk_pair *pair = &rk_pairs[entry->pair];
    struct rk_context *context = &rk_contexts[pair->context];
    uint64_t now = rk_clock_ns(CLOCK_MONOTONIC);
    rk_device_clock_refresh(context);
    double span = rk_device_span(context, pair->start, pair->end);
    uint64_t duration = span > 0 ? (uint64_t)span : 0;
    uint64_t end = rk_device_time(context, pair->end);
    /* The duration is the device's own. Where the reading of its clock is off by some microseconds,
     * what is certain decides: not before it was enqueued, not after it was seen to be over. */
    if (end == 0 || end > now)
        end = now;
    if (end < op->enqueue_ns + duration)
        end = op->enqueue_ns + duration;
    op->start_ns = end - duration;
    op->end_ns = end;
}

static void finish(struct stream_queue *queue, int state)
{
    uint32_t index = queue->head - 1;
    struct rk_pending *entry = &rk_pending[index];
    queue->head = entry->behind;
    if (state == RK_DEVICE_DONE) {
        place_in_time(entry);
    } else {
        entry->op.flags |= RK_OP_FAILED;
        entry->op.end_ns = rk_clock_ns(CLOCK_MONOTONIC);
    }
    /* Ended before `hide`: a reader drops what is both in flight and over. */
    struct rk_slot *slot = queue - queues < SHOWN_QUEUES ? slot_of(queue) : slot_of(&queues[0]);
    struct rk_header *header = atomic_load_explicit(&rk_state, memory_order_acquire);
    if (slot != NULL && header != NULL)
        rk_record(header, slot, &entry->op, entry->weight);
    else if (header != NULL)
        atomic_fetch_add_explicit(&header->dropped, 1, memory_order_relaxed);
    if (queue->shown)
        rk_device_hide(queue->slot);
    queue->shown = false;
    rk_pair_drop(entry->pair);
    rk_pending_free(index);
}

static void note_begin(struct stream_queue *queue, struct rk_pending *entry)
{
    struct rk_pair *pair = &rk_pairs[entry->pair];
    struct rk_context *context = &rk_contexts[pair->context];
    if (!entry->begun && context->api->event_query(pair->start) == RK_DEVICE_DONE) {
        entry->begun = true;
        entry->op.flags &= ~(uint32_t)RK_OP_QUEUED;
        rk_device_clock_refresh(context);
        uint64_t start = rk_device_time(context, pair->start);
        if (start > entry->op.enqueue_ns)
            entry->op.start_ns = start;
        show(queue, entry);
    } else if (!queue->shown) {
        show(queue, entry);
    }
}

static uint32_t poll_queue(struct stream_queue *queue)
{
    uint32_t finished = 0;
    while (queue->head != 0) {
        struct rk_pending *entry = &rk_pending[queue->head - 1];
        struct rk_pair *pair = &rk_pairs[entry->pair];
        struct rk_context *context = &rk_contexts[pair->context];
        rk_context_use(context->api, context->key);
        int state = context->api->event_query(pair->end);
        if (state == RK_DEVICE_NOT_READY) {
            note_begin(queue, entry);
            break;
        }
        finish(queue, state);
        finished++;
    }
    return finished;
}

struct rk_stream_queues_pass rk_stream_queues_poll(void)
{
    struct rk_stream_queues_pass pass = {0, 0};
    take_in();
    for (int i = 0; i < queues_used; i++) {
        if (queues[i].head != 0)
            pass.finished += poll_queue(&queues[i]);
        pass.waiting += queues[i].head != 0;
    }
    while (queues_used > 0 && queues[queues_used - 1].head == 0)
        queues_used--;
    return pass;
}

void rk_stream_queues_abandon(enum rk_platform vendor)
{
    take_in();
    for (int i = 0; i < queues_used; i++)
        while (queues[i].head != 0 &&
               rk_contexts[rk_pairs[rk_pending[queues[i].head - 1].pair].context].vendor == vendor)
            finish(&queues[i], -1);
}

void rk_stream_queues_after_fork(void)
{
    for (int i = 0; i < QUEUES; i++)
        queues[i] = (struct stream_queue){0};
    queues_used = 0;
}
