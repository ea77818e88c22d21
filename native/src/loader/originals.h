/* Which function each wrapper stands for.
 *
 * Every wrapper is compiled several times over. One such copy is an entry: it leads to one function, so
 * it needs to know nothing of its caller, and a call ends where it would have ended without the hook
 * also through a pointer or a tail call. */
#ifndef RELKIT_ORIGINALS_H
#define RELKIT_ORIGINALS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "table/table.h"

/* Functions of one name that can be told apart in a process: every BLAS has its own sgemm_. */
enum { RK_ENTRIES = 4 };

typedef char *const rk_entry_table[RK_HOOK_COUNT][RK_ENTRIES];

/* Tells where the entries are; rows without a wrapper have NULL. */
void rk_originals_configure(const rk_entry_table *entries);

/* The entry that leads to this function, whose object is `loaded` (and may be unloaded); 0 where the
 * row has no entry left. */
uintptr_t rk_entry_for(enum rk_hook_id hook, uintptr_t function, bool loaded);

/* Some entry of the row leads to another function. */
bool rk_leads_elsewhere(enum rk_hook_id hook, uintptr_t function);

/* After libraries were unloaded: the entries of functions that are gone may be used again. */
void rk_originals_sweep(bool (*is_loaded)(uintptr_t function));

/* Counts those times: what was found in a library before may be gone. */
extern _Atomic uint32_t rk_unloads;

/* By entry, from its first call on. */
extern _Atomic uintptr_t rk_originals[RK_HOOK_COUNT][RK_ENTRIES];

uintptr_t rk_first_call(enum rk_hook_id hook, int entry);

/* The function that an entry leads to. */
static inline uintptr_t rk_original_of(enum rk_hook_id hook, int entry)
{
    uintptr_t function = atomic_load_explicit(&rk_originals[hook][entry], memory_order_acquire);
    return __builtin_expect(function != 0, 1) ? function : rk_first_call(hook, entry);
}

#endif
