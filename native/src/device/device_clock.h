/* Device time as CLOCK_MONOTONIC. For the poller's thread only. */
#ifndef RELKIT_DEVICE_CLOCK_H
#define RELKIT_DEVICE_CLOCK_H

#include "events.h"

/* When this event, which has passed, passed; 0 where the device gives no answer. */
uint64_t rk_device_time(struct rk_context *context, void *event);

/* Takes a new reading of both clocks where the last is older than a second. */
void rk_device_clock_refresh(struct rk_context *context);

/* Nanoseconds between two events that have passed; negative where the device does not say. */
double rk_device_span(struct rk_context *context, void *from, void *to);

#endif
