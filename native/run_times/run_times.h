/* How long threads of other processes have run, and waited for a core, written down again and again. */
#ifndef RELKIT_RUN_TIMES_H
#define RELKIT_RUN_TIMES_H

#include <stdatomic.h>
#include <stdint.h>

#define RKR_EXPORT __attribute__((visibility("default")))

/* What the caller may change, and read, while rkr_sample works. */
struct rkr_control {
    _Atomic int64_t period_ns;
    _Atomic int64_t stop;
    _Atomic int64_t rows; /* written so far */
};

/* Of these functions and of the row; relkit/straggler/collect/run_times.py asks. */
RKR_EXPORT uint32_t rkr_abi(void);

/* Reads `count` schedstat files every `period_ns` until `stop` is set. Row i of the ring, at
 * i % ring_rows, is 1 + 2 * count words: CLOCK_MONOTONIC, then of each file the time on a core and the
 * time of waiting for one, ns, or -1 twice where it says nothing (the thread has ended). */
RKR_EXPORT void rkr_sample(struct rkr_control *control, const int32_t *files, int32_t count,
                           int64_t *ring, int64_t ring_rows);

/* Rows written so far: those before may be read. */
RKR_EXPORT int64_t rkr_rows(struct rkr_control *control);

#endif
