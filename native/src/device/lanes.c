/* A stream works in order, so only its oldest operation needs asking; streams overtake each other as
 * they like. */
#define _GNU_SOURCE
#include "lanes.h"

#include <stddef.h>

#include "../core/clock.h"
#include "device_clock.h"
#include "pending.h"

/* Streams beyond these share the last lane, which is then slower to notice an end, no more. */
enum { LANES = 64, SHOWN_LANES = 16 };

struct lane {
    void *stream;
    int32_t place;
    uint32_t head, tail; /* index + 1, 0 = empty */
    struct rk_slot *slot;
    bool shown;
};

static struct lane lanes[LANES];
static int lanes_used; /* lanes at and above this are empty */

static struct lane *lane_for(const struct rk_pending *entry)
{
    int32_t place = rk_pairs[entry->pair].place;
    struct lane *empty = NULL;
    for (int i = 0; i < lanes_used; i++) {
        struct lane *lane = &lanes[i];
        if (lane->head == 0)
            empty = empty != NULL ? empty : lane;
        else if (lane->stream == entry->stream && lane->place == place)
            return lane;
    }
    if (empty == NULL && lanes_used < LANES)
        empty = &lanes[lanes_used++];
    if (empty == NULL)
        return &lanes[LANES - 1];
    empty->stream = entry->stream;
    empty->place = place;
    return empty;
}

static void take_in(void)
{
    uint32_t at = rk_pending_collect();
    while (at != 0) {
        struct rk_pending *entry = &rk_pending[at - 1];
        uint32_t next = entry->behind;
        struct lane *lane = lane_for(entry);
        entry->behind = 0;
        if (lane->head == 0)
            lane->head = at;
        else
            rk_pending[lane->tail - 1].behind = at;
        lane->tail = at;
        at = next;
    }
}

static struct rk_slot *slot_of(struct lane *lane)
{
    if (lane->slot == NULL)
        lane->slot = rk_device_slot();
    return lane->slot;
}

static void show(struct lane *lane, const struct rk_pending *entry)
{
    if (lane - lanes >= SHOWN_LANES || slot_of(lane) == NULL)
        return;
    lane->shown = true;
    rk_device_show(lane->slot, &entry->op);
}

static void place_in_time(struct rk_pending *entry)
{
    struct rk_op *op = &entry->op;
    struct rk_pair *pair = &rk_pairs[entry->pair];
    struct rk_place *place = &rk_places[pair->place];
    uint64_t now = rk_clock_ns(CLOCK_MONOTONIC);
    rk_device_clock_refresh(place);
    double span = rk_device_span(place, pair->start, pair->end);
    uint64_t duration = span > 0 ? (uint64_t)span : 0;
    uint64_t end = rk_device_time(place, pair->end);
    /* The duration is the device's own. Where the reading of its clock is off by some microseconds,
     * what is certain decides: not before it was enqueued, not after it was seen to be over. */
    if (end == 0 || end > now)
        end = now;
    if (end < op->enqueue_ns + duration)
        end = op->enqueue_ns + duration;
    op->start_ns = end - duration;
    op->end_ns = end;
}

static void finish(struct lane *lane, int state)
{
    uint32_t index = lane->head - 1;
    struct rk_pending *entry = &rk_pending[index];
    lane->head = entry->behind;
    if (state == RK_DEVICE_DONE) {
        place_in_time(entry);
    } else {
        entry->op.flags |= RK_OP_FAILED;
        entry->op.end_ns = rk_clock_ns(CLOCK_MONOTONIC);
    }
    /* Ended before `hide`: a reader drops what is both in flight and over. */
    struct rk_slot *slot = lane - lanes < SHOWN_LANES ? slot_of(lane) : slot_of(&lanes[0]);
    struct rk_header *header = atomic_load_explicit(&rk_state, memory_order_acquire);
    if (slot != NULL && header != NULL)
        rk_record(header, slot, &entry->op, entry->weight);
    else if (header != NULL)
        atomic_fetch_add_explicit(&header->dropped, 1, memory_order_relaxed);
    if (lane->shown)
        rk_device_hide(lane->slot);
    lane->shown = false;
    rk_pair_drop(entry->pair);
    rk_pending_free(index);
}

static void note_begin(struct lane *lane, struct rk_pending *entry)
{
    struct rk_pair *pair = &rk_pairs[entry->pair];
    struct rk_place *place = &rk_places[pair->place];
    if (!entry->begun && place->api->event_query(pair->start) == RK_DEVICE_DONE) {
        entry->begun = true;
        entry->op.flags &= ~(uint32_t)RK_OP_QUEUED;
        rk_device_clock_refresh(place);
        uint64_t start = rk_device_time(place, pair->start);
        if (start > entry->op.enqueue_ns)
            entry->op.start_ns = start;
        show(lane, entry);
    } else if (!lane->shown) {
        show(lane, entry);
    }
}

static uint32_t poll_lane(struct lane *lane)
{
    uint32_t finished = 0;
    while (lane->head != 0) {
        struct rk_pending *entry = &rk_pending[lane->head - 1];
        struct rk_pair *pair = &rk_pairs[entry->pair];
        struct rk_place *place = &rk_places[pair->place];
        rk_place_use(place->api, place->key);
        int state = place->api->event_query(pair->end);
        if (state == RK_DEVICE_NOT_READY) {
            note_begin(lane, entry);
            break;
        }
        finish(lane, state);
        finished++;
    }
    return finished;
}

struct rk_lanes_pass rk_lanes_poll(void)
{
    struct rk_lanes_pass pass = {0, 0};
    take_in();
    for (int i = 0; i < lanes_used; i++) {
        if (lanes[i].head != 0)
            pass.finished += poll_lane(&lanes[i]);
        pass.waiting += lanes[i].head != 0;
    }
    while (lanes_used > 0 && lanes[lanes_used - 1].head == 0)
        lanes_used--;
    return pass;
}

void rk_lanes_abandon(enum rk_platform vendor)
{
    take_in();
    for (int i = 0; i < lanes_used; i++)
        while (lanes[i].head != 0 &&
               rk_places[rk_pairs[rk_pending[lanes[i].head - 1].pair].place].vendor == vendor)
            finish(&lanes[i], -1);
}

void rk_lanes_after_fork(void)
{
    for (int i = 0; i < LANES; i++)
        lanes[i] = (struct lane){0};
    lanes_used = 0;
}
