/* A reference event on a stream of our own passes at once, because nothing else is on that stream,
 * so the host's clock before and after bound when it did. Other events are placed by the device's own
 * elapsed time from it. That time comes as a 32-bit float of milliseconds, and the two clocks drift
 * apart by some functions in a million: hence a new reading a second. */
#define _GNU_SOURCE
#include "device_clock.h"

#include <stddef.h>

#include "core/clock.h"

enum { READ_AGAIN_NS = 1000000000, GOOD_NS = 20000, PATIENCE_NS = 200000, TRIES = 3 };

double rk_device_span(struct rk_context *context, void *from, void *to)
{
    float milliseconds = 0;
    if (context->api->event_elapsed(&milliseconds, from, to) != 0)
        return -1;
    return (double)milliseconds * 1e6;
}

/* Whether the reference event passed, and when; the width of the bounds in *width_ns. */
static bool read_once(struct rk_context *context, uint64_t *at_ns, uint64_t *width_ns)
{
    uint64_t before = rk_clock_ns(CLOCK_MONOTONIC);
    if (context->api->event_record(context->clock_event, context->clock_stream) != 0)
        return false;
    for (;;) {
        int state = context->api->event_query(context->clock_event);
        uint64_t after = rk_clock_ns(CLOCK_MONOTONIC);
        if (state == RK_DEVICE_DONE) {
            *at_ns = before + (after - before) / 2;
            *width_ns = after - before;
            return true;
        }
        if (state != RK_DEVICE_NOT_READY || after - before > PATIENCE_NS)
            return false;
    }
}

static bool have_clock(struct rk_context *context)
{
    struct rk_device_api *api = context->api;
    if (context->clock_event != NULL)
        return true;
    if (context->clock_broken)
        return false;
    if (api->stream_create(&context->clock_stream, api->stream_flags) != 0)
        context->clock_stream = NULL;
    else if (api->event_create(&context->clock_event, api->event_flags) != 0)
        context->clock_event = NULL;
    context->clock_broken = context->clock_event == NULL;
    return !context->clock_broken;
}

void rk_device_clock_refresh(struct rk_context *context)
{
    uint64_t now = rk_clock_ns(CLOCK_MONOTONIC);
    if (now - context->tried_ns < READ_AGAIN_NS || !have_clock(context))
        return;
    context->tried_ns = now;
    context->clock_ns = 0;
    uint64_t width = UINT64_MAX;
    for (int i = 0; i < TRIES && width > GOOD_NS; i++)
        if (!read_once(context, &context->clock_ns, &width))
            context->clock_ns = 0;
}

uint64_t rk_device_time(struct rk_context *context, void *event)
{
    float milliseconds = 0;
    if (context->clock_ns == 0)
        return 0;
    /* The event may lie before the reference. CUDA then answers with a negative time; where a vendor
     * refuses, the question is put the other way round. */
    if (context->api->event_elapsed(&milliseconds, context->clock_event, event) != 0) {
        if (context->api->event_elapsed(&milliseconds, event, context->clock_event) != 0)
            return 0;
        milliseconds = -milliseconds;
    }
    return context->clock_ns + (uint64_t)(int64_t)((double)milliseconds * 1e6);
}
