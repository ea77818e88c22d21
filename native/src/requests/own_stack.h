/* Stacks of our own for signal handlers: a thread may have no room for more than a call. */
#ifndef RELKIT_OWN_STACK_H
#define RELKIT_OWN_STACK_H

#include <stdbool.h>

/* Calls the function on a stack of ours, which is empty again when it returns. False, and nothing is
 * called, where all are in use. Async-signal-safe. */
bool rk_call_on_own_stack(void (*function)(void *), void *argument);

/* In the child of a fork: the threads that used the others are not there. */
void rk_own_stacks_after_fork(void);

#endif
