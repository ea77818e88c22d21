/* The real sigaction and signal: this library has its own, hooks/signal_guard.c. */
#ifndef RELKIT_SIGACTION_H
#define RELKIT_SIGACTION_H

#include <signal.h>

int rk_real_sigaction(int number, const struct sigaction *action, struct sigaction *before);
void (*rk_real_signal(int number, void (*handler)(int)))(int);

#endif
