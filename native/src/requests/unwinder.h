#ifndef RELKIT_UNWINDER_H
#define RELKIT_UNWINDER_H

#include <stdbool.h>
#include <stdint.h>

/* Whether rk_unwind can find anything here: it needs glibc 2.35. */
bool rk_unwind_is_possible(void);

/* The stack of the thread that a signal interrupted, from its context (what a handler is given):
 * innermost first, the program counter itself and then return addresses. Reads only memory that is there.
 * Returns how many were stored; *truncated tells that the stack went on, or could not be followed. */
int rk_unwind(const void *context, uintptr_t *addresses, int limit, bool *truncated);

/* Has this library's own copy of libgcc (-static-libgcc) set itself up. Without that it aborts the program
 * when an exception passes through one of our wrappers. Not for handlers. */
void rk_unwind_prepare(void);

#endif
