/* Times one operation on its stream: an event before, an event after, and the poller does the rest. */
#ifndef RELKIT_DEVICE_TIMING_H
#define RELKIT_DEVICE_TIMING_H

#include "core/recorder.h"
#include "vendor.h"

enum rk_timing_result {
    RK_TIMING_OFF,      /* no device to ask, or the budget is used up */
    RK_TIMING_CAPTURED, /* the stream is being captured: nothing runs now */
    RK_TIMING_ON,
};

struct rk_timing {
    enum rk_timing_result result;
    int pair;
    uint64_t enqueue_ns;
    struct rk_device_api *api;
    void *stream;
};

/* Records the first event, and tells whether that went well. */
enum rk_timing_result rk_timing_start(struct rk_timing *timing, enum rk_platform vendor,
                                      void *stream);

/* Records the second event; only after RK_TIMING_ON. False: the operation cannot be timed. */
bool rk_timing_end(struct rk_timing *timing);

/* Gives an operation of the timing to the poller. Any number may share one timing; the last call is
 * rk_timing_close. `weight`: how many launches it stands for. */
bool rk_timing_post(struct rk_timing *timing, const struct rk_op *op, uint32_t weight);

void rk_timing_close(struct rk_timing *timing);

/* How many launches one is timed of, per kind; 0 = none. From RELKIT_HOOK_SAMPLE. */
void rk_timing_configure(void);

void rk_device_after_fork(void);

#endif
