/* From the process's first hooked call to its end: switch on, survive a fork, stay out of the way. */
#ifndef RELKIT_LIFECYCLE_H
#define RELKIT_LIFECYCLE_H

#include <stdatomic.h>

/* 0 until the first hooked call of this process has been seen. */
extern _Atomic int rk_awake;

void rk_wake_slowly(void);

/* Every hook calls this first. There is no constructor: a process that makes no hooked call pays
 * for the mapping of this library and nothing else. */
static inline void rk_wake(void)
{
    if (__builtin_expect(atomic_load_explicit(&rk_awake, memory_order_acquire) == 0, 0))
        rk_wake_slowly();
}

#endif
