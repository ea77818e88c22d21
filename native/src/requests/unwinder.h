#ifndef RELKIT_UNWINDER_H
#define RELKIT_UNWINDER_H

#include <stdbool.h>
#include <stdint.h>

/* Whether rk_unwind may run in a signal handler: see unwinder.c. Not for handlers itself. */
bool rk_unwind_is_safe(void);

/* Return addresses of this thread, innermost first, from the frame whose program counter is
 * `from` outwards (all frames where `from` is not among them). Returns how many were stored;
 * *truncated tells that the stack went on. */
int rk_unwind(uintptr_t from, uintptr_t *addresses, int limit, bool *truncated);

#endif
