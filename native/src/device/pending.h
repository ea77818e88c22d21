/* Operations that were given to a device and are not known to be over. */
#ifndef RELKIT_DEVICE_PENDING_H
#define RELKIT_DEVICE_PENDING_H

#include "core/recorder.h"
#include "events.h"

enum { RK_PENDING = 2048 };

struct rk_pending {
    struct rk_op op; /* start_ns: when it was enqueued, until it is known to have begun */
    void *stream;
    int32_t pair;
    uint32_t weight; /* how many launches it stands for */
    uint32_t behind; /* index + 1 of the next on its stream; the poller's */
    bool begun;
    _Atomic uint32_t next;
};

extern struct rk_pending rk_pending[RK_PENDING];

/* Gives an operation to the poller, with one use of its pair; false where the table is full. */
bool rk_pending_add(const struct rk_op *op, void *stream, int pair, uint32_t weight);

/* All that were added since the last call, oldest first: index + 1, then by `behind`. */
uint32_t rk_pending_collect(void);

bool rk_pending_is_empty(void);

/* Entries in use, roughly. */
uint32_t rk_pending_load(void);

void rk_pending_free(uint32_t index);

void rk_pending_after_fork(void);

#endif
