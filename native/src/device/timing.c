#define _GNU_SOURCE
#include "timing.h"

#include <stdlib.h>

#include "aborts.h"
#include "core/clock.h"
#include "events.h"
#include "pending.h"
#include "poller.h"
#include "stream_queues.h"

enum { SAMPLE_DEFAULT = 64, SAMPLE_MAX = 1 << 30 };

/* The device cannot be used after a fork that comes after its first use. */
static _Atomic bool forked;

static enum rk_timing_result give_up(struct rk_device_api *api)
{
    if (api->take_error != NULL)
        api->take_error();
    atomic_fetch_add(&api->faults, 1);
    return RK_TIMING_OFF;
}

static enum rk_timing_result begin(struct rk_timing *timing, enum rk_platform vendor)
{
    struct rk_device_api *api = rk_device_api(vendor);
    if (api == NULL || atomic_load_explicit(&forked, memory_order_relaxed))
        return RK_TIMING_OFF;
    /* The program has yet to fetch an error of its own, which a failing call of ours would hide. */
    if (api->peek_error != NULL && api->peek_error() != 0)
        return RK_TIMING_OFF;
    if (rk_stream_captures(api, timing->stream))
        return RK_TIMING_CAPTURED;
    int context = rk_context_index(api, vendor, timing->stream);
    if (context < 0 || !rk_poller_runs())
        return RK_TIMING_OFF;
    int pair = rk_pair_take(context);
    if (pair == RK_NO_PAIR)
        return RK_TIMING_OFF;
    timing->api = api;
    timing->pair = pair;
    timing->enqueue_ns = rk_clock_ns(CLOCK_MONOTONIC);
    if (api->event_record(rk_pairs[pair].start, timing->stream) != 0) {
        rk_pair_drop(pair);
        return give_up(api);
    }
    return RK_TIMING_ON;
}

enum rk_timing_result rk_timing_start(struct rk_timing *timing, enum rk_platform vendor,
                                      void *stream)
{
    timing->stream = stream;
    timing->result = begin(timing, vendor);
    return timing->result;
}

bool rk_timing_end(struct rk_timing *timing)
{
    if (timing->api->event_record(rk_pairs[timing->pair].end, timing->stream) != 0) {
        rk_pair_drop(timing->pair);
        timing->result = give_up(timing->api);
        return false;
    }
    atomic_store_explicit(&timing->api->faults, 0, memory_order_relaxed);
    return true;
}

bool rk_timing_post(struct rk_timing *timing, const struct rk_op *op, uint32_t weight)
{
    struct rk_pair *pair = &rk_pairs[timing->pair];
    atomic_fetch_add_explicit(&pair->users, 1, memory_order_relaxed);
    if (!rk_pending_add(op, timing->stream, timing->pair, weight)) {
        rk_pair_drop(timing->pair);
        return false;
    }
    rk_poller_note();
    return true;
}

void rk_timing_close(struct rk_timing *timing)
{
    rk_pair_drop(timing->pair);
}

static uint32_t sample_from_environment(void)
{
    const char *text = getenv("RELKIT_HOOK_SAMPLE");
    if (text == NULL || *text == '\0')
        return SAMPLE_DEFAULT;
    char *end = NULL;
    long value = strtol(text, &end, 10);
    return *end == '\0' && value >= 0 && value <= SAMPLE_MAX ? (uint32_t)value : SAMPLE_DEFAULT;
}

void rk_timing_configure(void)
{
    atomic_store(&rk_sample_every, sample_from_environment());
}

void rk_device_after_fork(void)
{
    /* Nothing of the parent's is touched: its events are handles in a driver that is not ours. */
    if (atomic_load(&rk_contexts[0].ready))
        atomic_store(&forked, true);
    rk_vendor_after_fork();
    rk_events_after_fork();
    rk_pending_after_fork();
    rk_stream_queues_after_fork();
    rk_aborts_after_fork();
    rk_poller_after_fork();
}
