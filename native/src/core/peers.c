/* A hash table without deletion: a row is claimed by one exchange of its key, which says all that it
 * stands for, and stays. */
#include "peers.h"

#include <stddef.h>

enum { MAX_PROBES = 64, HASH_SHIFT = 64 - 10 };

_Static_assert(RK_MAX_PEERS == 1 << (64 - HASH_SHIFT), "the hash covers the table");

static uint64_t packed(struct rk_transfer_key key)
{
    if (key.communicator < 0 || key.peer < 0 || key.peer >> RK_PEER_RANK_BITS != 0 ||
        key.tag >> RK_PEER_TAG_BITS != 0)
        return 0;
    uint64_t between = (uint64_t)key.communicator << RK_PEER_RANK_BITS | (uint64_t)key.peer;
    return UINT64_C(1) << 63 | (uint64_t)key.receives << 62 | between << RK_PEER_TAG_BITS | key.tag;
}

static struct rk_peer *row_of(struct rk_header *header, uint64_t key)
{
    struct rk_peer *table = rk_peers(header);
    uint32_t home = (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> HASH_SHIFT);
    for (uint32_t i = 0; key != 0 && i < MAX_PROBES; i++) {
        struct rk_peer *row = &table[(home + i) % RK_MAX_PEERS];
        uint64_t known = atomic_load_explicit(&row->key, memory_order_acquire);
        if (known == 0 && atomic_compare_exchange_strong(&row->key, &known, key))
            return row;
        if (known == key)
            return row;
    }
    return NULL;
}

void rk_peer_post(struct rk_header *header, struct rk_transfer_key key, struct rk_op *op)
{
    op->communicator = (int16_t)key.communicator;
    op->peer = key.peer;
    op->flops = key.tag;
    op->seq = -1;
    struct rk_peer *row = row_of(header, packed(key));
    if (row == NULL) {
        atomic_fetch_add_explicit(&header->peers_dropped, 1, memory_order_relaxed);
        return;
    }
    uint64_t number = atomic_fetch_add_explicit(&row->posted, 1, memory_order_relaxed);
    /* For a moment the count is ahead of the size: whoever judges a hang reads them much later. */
    atomic_store_explicit(&row->size_bytes[number % RK_PEER_SIZES], op->size_bytes,
                          memory_order_release);
    op->seq = (int64_t)number;
    op->flags |= key.receives ? RK_OP_RECEIVES : 0u;
}

void rk_peer_done(struct rk_header *header, const struct rk_op *op)
{
    bool receives = (op->flags & RK_OP_RECEIVES) != 0;
    struct rk_peer *row = row_of(
        header, packed((struct rk_transfer_key){op->communicator, receives, op->peer, op->flops}));
    if (row != NULL)
        atomic_fetch_add_explicit(&row->done, 1, memory_order_relaxed);
}
