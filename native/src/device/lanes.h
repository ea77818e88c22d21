/* Pending operations by stream. For the poller's thread, or whoever holds its place. */
#ifndef RELKIT_DEVICE_LANES_H
#define RELKIT_DEVICE_LANES_H

#include <stdbool.h>
#include <stdint.h>

#include "vendor.h"

struct rk_lanes_pass {
    uint32_t finished;
    uint32_t waiting;
};

/* Takes in what was added, records what is over, and shows what each stream works on. */
struct rk_lanes_pass rk_lanes_poll(void);

/* Closes all operations of a vendor as failed, because its device is about to be reset. */
void rk_lanes_abandon(enum rk_platform vendor);

void rk_lanes_after_fork(void);

#endif
