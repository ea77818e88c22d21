/* Test double: collectives, sends and receives as the device does them. */
#define _GNU_SOURCE
#include "group_file.h"

#include <stdlib.h>
#include <string.h>

struct batch {
    uint32_t count;
    bool captured; /* its meetings are new ones at every replay */
    struct sim_item item[SIM_BATCH];
};

static struct sim_meeting *meeting_of(const struct sim_item *item, uint64_t *round, uint32_t *size)
{
    struct sim_comm *comm = item->comm;
    if (item->kind == SIM_COLLECTIVE) {
        *round = item->number / SIM_MEETINGS;
        *size = (uint32_t)comm->size;
        return &comm->shared->collective[item->number % SIM_MEETINGS];
    }
    int from = item->kind == SIM_SEND ? comm->rank : item->peer;
    int to = item->kind == SIM_SEND ? item->peer : comm->rank;
    *round = item->number / SIM_PAIR_MEETINGS;
    *size = 2;
    return &comm->shared->pair[from * SIM_RANKS + to][item->number % SIM_PAIR_MEETINGS];
}

static bool given_up(const struct sim_item *item)
{
    return sim_comm_aborted(item->comm);
}

static void arrive(const struct sim_item *item, uint64_t time_ns)
{
    uint64_t round;
    uint32_t size;
    struct sim_meeting *meeting = meeting_of(item, &round, &size);
    while (atomic_load(&meeting->round) != round && !given_up(item))
        sim_pause();
    uint64_t latest = atomic_load(&meeting->latest_ns);
    while (latest < time_ns && !atomic_compare_exchange_weak(&meeting->latest_ns, &latest, time_ns))
        ;
    atomic_fetch_add(&meeting->arrived, 1);
}

/* When the last rank began. */
static uint64_t wait_for_all(const struct sim_item *item)
{
    uint64_t round;
    uint32_t size;
    struct sim_meeting *meeting = meeting_of(item, &round, &size);
    while (atomic_load(&meeting->arrived) < size && !given_up(item))
        sim_pause();
    return given_up(item) ? sim_now_ns() : atomic_load(&meeting->latest_ns);
}

static void leave(const struct sim_item *item)
{
    uint64_t round;
    uint32_t size;
    struct sim_meeting *meeting = meeting_of(item, &round, &size);
    if (given_up(item) || atomic_fetch_add(&meeting->left, 1) + 1 != size)
        return;
    atomic_store(&meeting->arrived, 0);
    atomic_store(&meeting->left, 0);
    atomic_store(&meeting->latest_ns, 0);
    atomic_fetch_add(&meeting->round, 1);
}

static void stall(const struct sim_item *item)
{
    if (item->kind == SIM_COLLECTIVE &&
        sim_stalls(item->comm->library, item->comm->rank, item->number))
        while (!given_up(item))
            sim_pause();
}

static void begin(struct sim_item *item)
{
    struct sim_comm *comm = item->comm;
    _Atomic uint64_t *counts[] = {&comm->collectives, &comm->sent[item->peer >= 0 ? item->peer : 0],
                                  &comm->received[item->peer >= 0 ? item->peer : 0]};
    item->number = atomic_fetch_add(counts[item->kind], 1);
    atomic_fetch_add(&comm->pending, 1);
}

static void transfer(struct sim_stream *stream, struct sim_op *op)
{
    struct batch *batch = op->object;
    uint64_t *time_ns = sim_stream_time(stream);
    uint64_t start_ns = *time_ns, end_ns = start_ns;
    for (uint32_t i = 0; batch->captured && i < batch->count; i++)
        begin(&batch->item[i]);
    for (uint32_t i = 0; i < batch->count; i++)
        stall(&batch->item[i]);
    for (uint32_t i = 0; i < batch->count; i++)
        arrive(&batch->item[i], start_ns);
    for (uint32_t i = 0; i < batch->count; i++) {
        uint64_t latest_ns = wait_for_all(&batch->item[i]);
        if (latest_ns > end_ns)
            end_ns = latest_ns;
    }
    *time_ns = end_ns + op->length_ns;
    sim_sleep_until(*time_ns);
    for (uint32_t i = 0; i < batch->count; i++) {
        struct sim_item *item = &batch->item[i];
        leave(item);
        sim_trace(item->label, sim_stream_number(stream), start_ns, *time_ns, item->bytes);
        atomic_fetch_sub(&item->comm->pending, 1);
    }
}

static void drop(struct sim_op *op)
{
    free(op->object);
}

/* One rank has nobody to meet. */
static bool is_over_at_once(void *stream, const struct sim_item *items, uint32_t count)
{
    return count == 1 && items->comm->size == 1 && items->kind == SIM_COLLECTIVE &&
           sim_length(SIM_LENGTH_TRANSFER) == 0 && sim_is_idle(stream);
}

int sim_batch_enqueue(void *stream, const struct sim_item *items, uint32_t count)
{
    if (is_over_at_once(stream, items, count))
        return sim_usable();
    struct batch *batch = malloc(sizeof *batch);
    if (batch == NULL || count > SIM_BATCH) {
        free(batch);
        return SIM_BAD_VALUE;
    }
    batch->count = count;
    batch->captured = sim_stream_is_captured(stream);
    memcpy(batch->item, items, count * sizeof *items);
    for (uint32_t i = 0; !batch->captured && i < count; i++)
        begin(&batch->item[i]);
    int error = sim_enqueue(stream, &(struct sim_op){.body = transfer,
                                                     .drop = drop,
                                                     .length_ns = sim_length(SIM_LENGTH_TRANSFER),
                                                     .object = batch});
    if (error != SIM_OK) {
        for (uint32_t i = 0; !batch->captured && i < count; i++)
            atomic_fetch_sub(&items[i].comm->pending, 1);
        free(batch);
    }
    return error;
}
