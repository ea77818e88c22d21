#include "gloo_posts.h"

#include <string.h>

#include "core/peers.h"
#include "gloo_options.h"

enum { POSTS = 512, SET_BITS = 7, SET = 4, TRANSPORT_AT = 24 };

_Static_assert(POSTS == SET << SET_BITS, "the hash covers the table");

/* By buffer, for buffers posted outside collectives: a set of places each, where the newest stay. */
static struct {
    _Atomic uint64_t buffer;
    _Atomic int32_t peer;
    _Atomic int32_t communicator;
    _Atomic uint32_t flags;
    _Atomic int64_t seq;
    _Atomic uint64_t tag, size_bytes;
} posts[POSTS];

/* Wraps within the flags of an operation. */
static _Atomic uint32_t made;

/* gloo's transport context of each communicator, which its buffers hold on to. */
static _Atomic uint64_t transports[RK_MAX_COMMUNICATORS];
static _Atomic uint32_t transport_epoch = 1;

void rk_gloo_note_transport(const void *transport)
{
    struct rk_thread_notes *notes = rk_thread_notes();
    int index = notes->connecting - 1;
    if (index < 0)
        return;
    /* An address that comes round again is another group's. */
    for (int i = 0; i < RK_MAX_COMMUNICATORS; i++)
        if (atomic_load_explicit(&transports[i], memory_order_relaxed) == (uintptr_t)transport)
            atomic_store_explicit(&transports[i], 0, memory_order_relaxed);
    atomic_store_explicit(&transports[index], (uintptr_t)transport, memory_order_release);
    atomic_fetch_add(&transport_epoch, 1);
}

/* The group of a buffer: its transport context is the first thing that tcp::UnboundBuffer adds. */
static int communicator_of(const void *buffer)
{
    uint64_t transport;
    memcpy(&transport, (const char *)buffer + TRANSPORT_AT, sizeof transport);
    struct rk_thread_notes *notes = rk_thread_notes();
    uint32_t epoch = atomic_load_explicit(&transport_epoch, memory_order_acquire);
    if (notes->transport == transport && notes->transport_epoch == epoch)
        return notes->transport_index;
    notes->transport = transport;
    notes->transport_epoch = epoch;
    notes->transport_index = -1;
    for (int i = 0; transport != 0 && i < RK_MAX_COMMUNICATORS; i++)
        if (atomic_load_explicit(&transports[i], memory_order_acquire) == transport)
            notes->transport_index = i;
    return notes->transport_index;
}

static unsigned set_of(const void *buffer)
{
    return SET *
           (unsigned)(((uintptr_t)buffer >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> (64 - SET_BITS));
}

/* Where a buffer is noted; -1 where it is not. */
static int post_of(const void *buffer)
{
    unsigned first = set_of(buffer);
    for (unsigned at = first; at < first + SET; at++)
        if (atomic_load_explicit(&posts[at].buffer, memory_order_acquire) == (uintptr_t)buffer)
            return (int)at;
    return -1;
}

/* Where to note it: over itself, else over the oldest of its set. */
static unsigned place_for(const void *buffer, uint32_t now)
{
    int same = post_of(buffer);
    if (same >= 0)
        return (unsigned)same;
    unsigned oldest = set_of(buffer);
    uint32_t age = 0;
    for (unsigned at = oldest, i = 0; i < SET; i++, at++) {
        uint32_t flags = atomic_load_explicit(&posts[at].flags, memory_order_relaxed);
        uint32_t own =
            flags == 0 ? UINT32_MAX : now - (flags >> RK_OP_POST_SHIFT << RK_OP_POST_SHIFT);
        if (own > age) {
            age = own;
            oldest = at;
        }
    }
    return oldest;
}

void rk_gloo_note_post(const void *buffer, bool receives, int peer, uint64_t tag, uint64_t offset,
                       uint64_t bytes)
{
    struct rk_header *header = atomic_load_explicit(&rk_state, memory_order_acquire);
    if (header == NULL)
        return;
    uint64_t whole = rk_gloo_buffer_bytes(buffer);
    if (bytes == RK_REST_OF_BUFFER)
        bytes = whole > offset ? whole - offset : 0;
    struct rk_transfer_key key = {communicator_of(buffer), receives, peer, tag};
    struct rk_op op = {.seq = -1,
                       .size_bytes = bytes,
                       .communicator = (int16_t)key.communicator,
                       .peer = peer,
                       .flops = tag};
    if (key.communicator >= 0 && peer >= 0)
        rk_peer_post(header, key, &op);
    uint32_t now = (atomic_fetch_add_explicit(&made, 1, memory_order_relaxed) + 1)
                   << RK_OP_POST_SHIFT;
    op.flags |= now;
    unsigned at = place_for(buffer, now);
    atomic_store_explicit(&posts[at].buffer, 0, memory_order_relaxed);
    atomic_store_explicit(&posts[at].peer, peer, memory_order_release);
    atomic_store_explicit(&posts[at].communicator, op.communicator, memory_order_release);
    atomic_store_explicit(&posts[at].flags, op.flags, memory_order_release);
    atomic_store_explicit(&posts[at].seq, op.seq, memory_order_release);
    atomic_store_explicit(&posts[at].tag, tag, memory_order_release);
    atomic_store_explicit(&posts[at].size_bytes, bytes, memory_order_release);
    atomic_store_explicit(&posts[at].buffer, (uintptr_t)buffer, memory_order_release);
}

void rk_gloo_describe_wait(struct rk_op *op, const void *buffer)
{
    int at = post_of(buffer);
    if (at < 0)
        return;
    op->peer = atomic_load_explicit(&posts[at].peer, memory_order_relaxed);
    op->communicator = (int16_t)atomic_load_explicit(&posts[at].communicator, memory_order_relaxed);
    op->seq = atomic_load_explicit(&posts[at].seq, memory_order_relaxed);
    op->flops = atomic_load_explicit(&posts[at].tag, memory_order_relaxed);
    op->flags |= atomic_load_explicit(&posts[at].flags, memory_order_relaxed);
    op->size_bytes = atomic_load_explicit(&posts[at].size_bytes, memory_order_relaxed);
}

void rk_gloo_note_sender(struct rk_header *header, struct rk_op *op, int peer)
{
    op->peer = peer;
    if (op->communicator >= 0)
        rk_peer_post(header, (struct rk_transfer_key){op->communicator, true, peer, op->flops}, op);
}
