/* How long the process's main thread has run, and waited for a core, by the scheduler's count. */
#ifndef RELKIT_MAIN_THREAD_H
#define RELKIT_MAIN_THREAD_H

#include <stdint.h>

struct rk_main_thread_time {
    uint64_t run_ns;
    uint64_t wait_ns;
};

/* Opens /proc/self/task/PID/schedstat; where that fails both times stay 0. */
void rk_main_thread_open(void);

/* The newest reading, taken afresh where it is older than two milliseconds. No lock, no
 * allocation; at most one pread. `now_ns`: CLOCK_MONOTONIC. */
struct rk_main_thread_time rk_main_thread_time(uint64_t now_ns);

/* In the child of a fork: the parent's file speaks of another process. */
void rk_main_thread_close(void);

#endif
