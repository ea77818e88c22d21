/* Where a hooked call really goes. */
#ifndef RELKIT_RESOLVE_H
#define RELKIT_RESOLVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "table/table.h"

enum { RK_KNOWN_CALLERS = 4 };

struct rk_original {
    uintptr_t low, high;        /* callers in this address range ... */
    _Atomic uintptr_t function; /* ... mean this function; stored last */
};

extern struct rk_original rk_originals[RK_HOOK_COUNT][RK_KNOWN_CALLERS];

uintptr_t rk_find_original(enum rk_hook_id hook, uintptr_t caller);

/* The same without falling back on what others have looked up, and without remembering. */
uintptr_t rk_peek_original(enum rk_hook_id hook, uintptr_t caller);

/* A program that looked this function up by name is given our wrapper for it. False where the
 * wrapper stands for another function already. */
bool rk_hand_out(enum rk_hook_id hook, uintptr_t function);

void rk_resolve_after_fork(void);

/* The function that a call from `caller` (a return address) would have reached without this
 * library; 0 where there is none. */
static inline uintptr_t rk_original_of(enum rk_hook_id hook, void *caller)
{
    struct rk_original *first = &rk_originals[hook][0];
    uintptr_t function = atomic_load_explicit(&first->function, memory_order_acquire);
    if (function != 0 && (uintptr_t)caller - first->low < first->high - first->low)
        return function;
    return rk_find_original(hook, (uintptr_t)caller);
}

#endif
