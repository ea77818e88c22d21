/* Point-to-point: PyTorch posts a send or receive and then waits for it. The wait is the
 * operation; the post, which returns at once, tells who the peer is. Collectives do the same
 * inside themselves, and there neither is recorded. */
#include "hook.h"
#include "hooks/gloo_options.h"
#include "hooks/gloo_posts.h"

typedef void (*post_function)(void *, int, uint64_t, uint64_t, uint64_t);

#define POST(id, function)                                                                         \
    HOOK(id, void, function,                                                                       \
         (void *buffer, int peer, uint64_t slot, uint64_t offset, uint64_t bytes))                 \
    {                                                                                              \
        post_function original = ORIGINAL(id, post_function);                                      \
        if (!rk_inside())                                                                          \
            rk_gloo_note_post(buffer, peer);                                                       \
        original(buffer, peer, slot, offset, bytes);                                               \
    }

POST(GLOO_POST_RECV, hook_post_recv)
POST(GLOO_POST_SEND, hook_post_send)

typedef bool (*wait_function)(void *, int *, long);

#define WAIT(id, function)                                                                         \
    HOOK(id, bool, function, (void *buffer, int *rank, long timeout_ms))                           \
    {                                                                                              \
        wait_function original = ORIGINAL(id, wait_function);                                      \
        RK_SCOPE(scope);                                                                           \
        if (scope.slot != NULL) {                                                                  \
            scope.op.hook = RK_HOOK_##id;                                                          \
            scope.op.size_bytes = rk_gloo_buffer_bytes(buffer);                                    \
            scope.op.peer = rk_gloo_peer_of(buffer);                                               \
            rk_begin(&scope);                                                                      \
        }                                                                                          \
        bool done = original(buffer, rank, timeout_ms);                                            \
        scope.returned = true;                                                                     \
        return done;                                                                               \
    }

WAIT(GLOO_WAIT_RECV, hook_wait_recv)
WAIT(GLOO_WAIT_SEND, hook_wait_send)
