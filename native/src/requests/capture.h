/* Native stacks of the process's own threads, taken by each thread itself in a signal handler. */
#ifndef RELKIT_CAPTURE_H
#define RELKIT_CAPTURE_H

#include <stdbool.h>

#include "relkit/state_layout.h"

/* Picks a free real-time signal, installs the handler, and says so in the header; or says there
 * why not. Calling it again (in a forked child) keeps the signal. */
void rk_capture_offer(struct rk_header *header);

/* The program sets this signal itself: it is not for requests. True where they come by it now. */
bool rk_capture_avoid(int number);

/* The program takes that signal for itself: requests come by another from now on. */
void rk_capture_moves(void);

#endif
