/* The communicators that live, so that a request can abort them, and those that were aborted, so that
 * the program's own calls no longer reach them. */
#ifndef RELKIT_DEVICE_ABORTS_H
#define RELKIT_DEVICE_ABORTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef int (*rk_abort_function)(void *communicator);

/* A communicator came to be. */
void rk_aborts_add(void *communicator, rk_abort_function abort);

/* The program ends it. False where we have ended it: then the program must not. */
bool rk_aborts_remove(void *communicator);

extern _Atomic uint32_t rk_aborted_count;

bool rk_aborts_lookup(const void *communicator);

/* Whether we have ended it, and calls must be refused. */
static inline bool rk_is_aborted(const void *communicator)
{
    return __builtin_expect(atomic_load_explicit(&rk_aborted_count, memory_order_relaxed) != 0,
                            0) &&
           rk_aborts_lookup(communicator);
}

uint32_t rk_aborts_live(void);

/* Starts a thread; false where it cannot. */
typedef bool (*rk_thread_starter)(void *(*body)(void *), void *argument);

/* Aborts all that live, each in a thread; the last to end answers the request in the header. */
void rk_aborts_run(uint32_t generation, rk_thread_starter start);

void rk_aborts_after_fork(void);

#endif
