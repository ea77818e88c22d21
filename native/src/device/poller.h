/* The hook's one thread: sees operations end on the device. */
#ifndef RELKIT_DEVICE_POLLER_H
#define RELKIT_DEVICE_POLLER_H

#include <stdbool.h>
#include <stdint.h>

#include "vendor.h"

/* Whether the thread runs; starts it where it was never tried. */
bool rk_poller_runs(void);

/* Something was added. Costs a system call only where the thread sleeps for good. */
void rk_poller_note(void);

/* Asks the thread to abort the communicators. Async-signal-safe. False where there is nobody to do
 * it, and the caller must answer the request. */
bool rk_poller_release(uint32_t generation);

/* The vendor's device is about to be reset, and all its events with it. */
void rk_poller_forget(enum rk_platform vendor);

void rk_poller_after_fork(void);

#endif
