/* From the process's first hooked call to its end: switch on, survive a fork, stay out of the way. */
#ifndef RELKIT_LIFECYCLE_H
#define RELKIT_LIFECYCLE_H

#include <stdatomic.h>

enum rk_progress { RK_NOT_STARTED, RK_STARTING, RK_STARTED };

/* Where this process is between its first hooked call and the end of what that sets up. */
extern _Atomic int rk_progress;

void rk_initialise_slowly(void);

/* Every hook calls this first. There is no constructor: a process that makes no hooked call pays
 * for the mapping of this library and nothing else. */
static inline void rk_initialise(void)
{
    if (__builtin_expect(atomic_load_explicit(&rk_progress, memory_order_acquire) != RK_STARTED, 0))
        rk_initialise_slowly();
}

#endif
