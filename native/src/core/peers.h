/* Sends and receives counted by group, direction, peer and tag. */
#ifndef RELKIT_PEERS_H
#define RELKIT_PEERS_H

#include <stdbool.h>

#include "state_file.h"

/* One direction of one pair of ranks. */
struct rk_transfer_key {
    int communicator;
    bool receives;
    int32_t peer; /* rank in the group */
    uint64_t tag;
};

/* Counts a call, and makes `op` that transfer. Its number stays -1 where the table is full, or where a
 * part of the key does not fit. Any thread, no lock. */
void rk_peer_post(struct rk_header *header, struct rk_transfer_key key, struct rk_op *op);

/* A transfer that has a number has ended well. */
void rk_peer_done(struct rk_header *header, const struct rk_op *op);

#endif
