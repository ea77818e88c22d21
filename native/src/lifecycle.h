/* From the process's first hooked call to its end: switch on, survive a fork, stay out of the way. */
#ifndef RELKIT_LIFECYCLE_H
#define RELKIT_LIFECYCLE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "table/table.h"

/* RK_WAITING: a rank's helper, which records from its first communication on, if there is one; or a
 * standby, which records once it is a rank. */
enum rk_progress { RK_NOT_STARTED, RK_STARTING, RK_WAITING, RK_STARTED };

/* Where this process is between its first hooked call and the end of what that sets up. */
extern _Atomic int rk_progress;

/* False in a program linked with musl that inherited LD_PRELOAD, for example from a shell: there
 * this library only passes calls on. */
bool rk_libc_is_glibc(void);

/* RELKIT_HOOK_DISABLE=1. */
bool rk_hook_is_disabled(void);

/* This library was loaded into the process, by its start or by exec. */
void rk_was_loaded(void);

/* A standby has got its rank, and the environment to go with it: what was waited for begins anew, so
 * that it records as a process that has just been started. */
__attribute__((visibility("default"))) void relkit_standby_over(void);

void rk_initialise_slowly(enum rk_hook_id hook);

/* Every hook calls this first, and says which one it is. No file is made before: a process that
 * makes no hooked call only pays for the mapping of this library and its constructor. */
static inline void rk_initialise(enum rk_hook_id hook)
{
    if (__builtin_expect(atomic_load_explicit(&rk_progress, memory_order_acquire) != RK_STARTED, 0))
        rk_initialise_slowly(hook);
}

#endif
