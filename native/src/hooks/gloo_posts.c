#include "gloo_posts.h"

#include <string.h>

#include "core/peers.h"
#include "gloo_options.h"

enum { POSTS = 512, SET_BITS = 7, SET = 4, TRANSPORT_AT = 24 };

/* In place of a buffer's address: a thread is writing here. */
enum { BEING_WRITTEN = 1 };

/* Larger than any age, which is a multiple of 1 << RK_OP_POST_SHIFT. */
#define EMPTY (UINT32_MAX - 1)
#define OWN_PLACE UINT32_MAX

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

/* How many were posted; the flags of an operation hold it modulo 2^24. */
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

/* Takes the place in which to note a buffer: its own, else an empty one, else that of its set's oldest
 * post. -1 where other threads are writing them all, or keep taking them first. */
static int take_place(const void *buffer)
{
    unsigned first = set_of(buffer);
    for (int trial = 0; trial < SET; trial++) {
        int place = -1;
        uint32_t best = 0;
        uint64_t held = 0;
        for (unsigned at = first; at < first + SET; at++) {
            uint64_t other = atomic_load_explicit(&posts[at].buffer, memory_order_acquire);
            if (other == BEING_WRITTEN)
                continue;
            uint32_t number =
                atomic_load_explicit(&posts[at].flags, memory_order_acquire) >> RK_OP_POST_SHIFT;
            /* `made` is read last: it is never behind a number that was seen. */
            uint32_t age = (atomic_load_explicit(&made, memory_order_relaxed) - number)
                           << RK_OP_POST_SHIFT;
            uint32_t merit = other == (uintptr_t)buffer ? OWN_PLACE : other == 0 ? EMPTY : age;
            if (place < 0 || merit > best) {
                place = (int)at;
                best = merit;
                held = other;
            }
        }
        if (place < 0)
            return -1;
        if (atomic_compare_exchange_strong_explicit(&posts[place].buffer, &held, BEING_WRITTEN,
                                                    memory_order_acq_rel, memory_order_relaxed))
            return place;
    }
    return -1;
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
    uint32_t number = atomic_fetch_add_explicit(&made, 1, memory_order_relaxed) + 1;
    op.flags |= number << RK_OP_POST_SHIFT;
    int at = take_place(buffer);
    if (at < 0)
        return;
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
    unsigned at = set_of(buffer), end = at + SET;
    while (atomic_load_explicit(&posts[at].buffer, memory_order_acquire) != (uintptr_t)buffer)
        if (++at == end)
            return;
    struct rk_op wait = *op;
    wait.peer = atomic_load_explicit(&posts[at].peer, memory_order_acquire);
    wait.communicator =
        (int16_t)atomic_load_explicit(&posts[at].communicator, memory_order_acquire);
    wait.seq = atomic_load_explicit(&posts[at].seq, memory_order_acquire);
    wait.flops = atomic_load_explicit(&posts[at].tag, memory_order_acquire);
    wait.flags |= atomic_load_explicit(&posts[at].flags, memory_order_acquire);
    wait.size_bytes = atomic_load_explicit(&posts[at].size_bytes, memory_order_acquire);
    /* Another thread's post may have taken the place meanwhile. */
    if (atomic_load_explicit(&posts[at].buffer, memory_order_relaxed) == (uintptr_t)buffer)
        *op = wait;
}

void rk_gloo_note_sender(struct rk_header *header, struct rk_op *op, int peer)
{
    op->peer = peer;
    if (op->communicator >= 0)
        rk_peer_post(header, (struct rk_transfer_key){op->communicator, true, peer, op->flops}, op);
}
