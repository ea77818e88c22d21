/* Point-to-point: PyTorch posts a send or receive and then waits for it. The wait is the
 * operation; the post, which returns at once, tells who the peer is. Collectives do the same
 * inside themselves, and there neither is recorded. */
#include "gloo_options.h"
#include "hook.h"

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

static void note_post(const void *buffer, int peer)
{
    unsigned at = post_of(buffer);
    atomic_store_explicit(&posts[at].buffer, 0, memory_order_relaxed);
    atomic_store_explicit(&posts[at].peer, peer, memory_order_release);
    atomic_store_explicit(&posts[at].buffer, (uint64_t)(uintptr_t)buffer, memory_order_release);
}

static int peer_of(const void *buffer)
{
    unsigned at = post_of(buffer);
    uint64_t known = atomic_load_explicit(&posts[at].buffer, memory_order_acquire);
    int peer = atomic_load_explicit(&posts[at].peer, memory_order_relaxed);
    return known == (uint64_t)(uintptr_t)buffer ? peer : -1;
}

typedef void (*post_function)(void *, int, uint64_t, uint64_t, uint64_t);

#define POST(id, function)                                                                         \
    HOOK(id, void, function,                                                                       \
         (void *buffer, int peer, uint64_t slot, uint64_t offset, uint64_t bytes))                 \
    {                                                                                              \
        post_function original = ORIGINAL(id, post_function);                                      \
        if (original == NULL)                                                                      \
            return;                                                                                \
        if (!rk_inside())                                                                          \
            note_post(buffer, peer);                                                               \
        original(buffer, peer, slot, offset, bytes);                                               \
    }

POST(GLOO_POST_RECV, hook_post_recv)
POST(GLOO_POST_SEND, hook_post_send)

typedef bool (*wait_function)(void *, int *, long);

#define WAIT(id, function)                                                                         \
    HOOK(id, bool, function, (void *buffer, int *rank, long timeout_ms))                           \
    {                                                                                              \
        wait_function original = ORIGINAL(id, wait_function);                                      \
        if (original == NULL)                                                                      \
            return false;                                                                          \
        RK_SCOPE(scope);                                                                           \
        if (scope.slot != NULL) {                                                                  \
            scope.op.hook = RK_HOOK_##id;                                                          \
            scope.op.size_bytes = rk_gloo_buffer_bytes(buffer);                                    \
            scope.op.peer = peer_of(buffer);                                                       \
            rk_begin(&scope);                                                                      \
        }                                                                                          \
        bool done = original(buffer, rank, timeout_ms);                                            \
        scope.returned = true;                                                                     \
        return done;                                                                               \
    }

WAIT(GLOO_WAIT_RECV, hook_wait_recv)
WAIT(GLOO_WAIT_SEND, hook_wait_send)
