/* Pending operations by stream. For the poller's thread, or whoever stands in for it. */
#ifndef RELKIT_DEVICE_STREAM_QUEUES_H
#define RELKIT_DEVICE_STREAM_QUEUES_H

#include <stdbool.h>
#include <stdint.h>

#include "vendor.h"

struct rk_stream_queues_pass {
    uint32_t finished;
    uint32_t waiting;
};

/* Takes in what was added, records what is over, and shows what each stream works on. */
struct rk_stream_queues_pass rk_stream_queues_poll(void);

/* Closes all operations of a vendor as failed, because its device is about to be reset. */
void rk_stream_queues_abandon(enum rk_platform vendor);

void rk_stream_queues_after_fork(void);

#endif
