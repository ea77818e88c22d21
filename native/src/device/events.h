/* Pairs of device events, made as they are needed, used again and again, within a fixed budget. */
#ifndef RELKIT_DEVICE_EVENTS_H
#define RELKIT_DEVICE_EVENTS_H

#include "stack.h"
#include "vendor.h"

enum { RK_EVENT_PAIRS = 1024, RK_CONTEXTS = 32, RK_NO_PAIR = -1 };

struct rk_pair {
    void *start, *end;
    _Atomic uint32_t users; /* operations that this pair times */
    _Atomic uint32_t next;
    int32_t context;
};

/* A context or device, with the clock that maps its time to ours. Only the poller's thread uses
 * what stands below `free`. */
struct rk_context {
    struct rk_device_api *api;
    void *key;
    enum rk_platform vendor;
    _Atomic uint32_t ready;
    rk_stack free;
    void *clock_stream;
    void *clock_event;
    uint64_t clock_ns; /* CLOCK_MONOTONIC when the event passed; 0 = never */
    uint64_t tried_ns;
    bool clock_broken;
};

extern struct rk_pair rk_pairs[RK_EVENT_PAIRS];
extern struct rk_context rk_contexts[RK_CONTEXTS];

/* The context of work on this stream, entered where it is new; -1 where there is none. */
int rk_context_index(struct rk_device_api *api, enum rk_platform vendor, void *stream);

/* A pair for one operation; RK_NO_PAIR where the budget is used up or the device refuses. */
int rk_pair_take(int context);

/* One operation no longer needs it. */
void rk_pair_drop(int pair);

/* Destroys all events of a vendor that no operation uses, before its device is reset. */
void rk_events_destroy(enum rk_platform vendor);

void rk_events_after_fork(void);

#endif
