#include "gloo_posts.h"

#include <stdatomic.h>
#include <stdint.h>

enum { POSTS = 256 };

/* Peer by buffer, for buffers posted outside collectives. A collision forgets the older one. */
static struct {
    _Atomic uint64_t buffer;
    _Atomic int32_t peer;
} posts[POSTS];

static unsigned post_of(const void *buffer)
{
    return (unsigned)(((uintptr_t)buffer >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 56);
}

void rk_gloo_note_post(const void *buffer, int peer)
{
    unsigned at = post_of(buffer);
    atomic_store_explicit(&posts[at].buffer, 0, memory_order_relaxed);
    atomic_store_explicit(&posts[at].peer, peer, memory_order_release);
    atomic_store_explicit(&posts[at].buffer, (uint64_t)(uintptr_t)buffer, memory_order_release);
}

int rk_gloo_peer_of(const void *buffer)
{
    unsigned at = post_of(buffer);
    uint64_t known = atomic_load_explicit(&posts[at].buffer, memory_order_acquire);
    int peer = atomic_load_explicit(&posts[at].peer, memory_order_relaxed);
    return known == (uint64_t)(uintptr_t)buffer ? peer : -1;
}
