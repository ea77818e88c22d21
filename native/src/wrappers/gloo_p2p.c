/* Point-to-point: PyTorch posts a send or receive and then waits for it. The wait is the
 * operation; the post, which returns at once, tells what it is. Collectives do the same
 * inside themselves, and there neither is recorded. */
#include "hook.h"
#include "hooks/gloo_options.h"
#include "hooks/gloo_posts.h"

typedef void (*post_function)(void *, int, uint64_t, uint64_t, uint64_t);

#define POST(id, function, receives)                                                               \
    HOOK(id, void, function,                                                                       \
         (void *buffer, int peer, uint64_t slot, uint64_t offset, uint64_t bytes))                 \
    {                                                                                              \
        post_function original = ORIGINAL(id, post_function);                                      \
        if (!rk_inside())                                                                          \
            rk_gloo_note_post(buffer, receives, peer, slot, offset, bytes);                        \
        original(buffer, peer, slot, offset, bytes);                                               \
    }

POST(GLOO_POST_RECV, hook_post_recv, true)
POST(GLOO_POST_SEND, hook_post_send, false)

/* std::vector<int> by value: the caller's copy, by its address. */
typedef void (*post_any_function)(void *, void *, uint64_t, uint64_t, uint64_t);

HOOK(GLOO_POST_RECV_ANY, void, hook_post_recv_any,
     (void *buffer, void *peers, uint64_t slot, uint64_t offset, uint64_t bytes))
{
    post_any_function original = ORIGINAL(GLOO_POST_RECV_ANY, post_any_function);
    if (!rk_inside())
        rk_gloo_note_post(buffer, true, -1, slot, offset, bytes);
    original(buffer, peers, slot, offset, bytes);
}

typedef bool (*wait_function)(void *, int *, long);

#define WAIT(id, function, receives)                                                               \
    HOOK(id, bool, function, (void *buffer, int *rank, long timeout_ms))                           \
    {                                                                                              \
        wait_function original = ORIGINAL(id, wait_function);                                      \
        RK_SCOPE(scope);                                                                           \
        if (scope.slot != NULL) {                                                                  \
            scope.op.hook = RK_HOOK_##id;                                                          \
            scope.op.size_bytes = rk_gloo_buffer_bytes(buffer);                                    \
            rk_gloo_describe_wait(&scope.op, buffer);                                              \
            rk_begin(&scope);                                                                      \
        }                                                                                          \
        bool done = original(buffer, rank, timeout_ms);                                            \
        scope.returned = true;                                                                     \
        if (receives && done && scope.begun && scope.op.peer < 0 && rank != NULL && *rank >= 0)    \
            rk_gloo_note_sender(scope.header, &scope.op, *rank);                                   \
        return done;                                                                               \
    }

WAIT(GLOO_WAIT_RECV, hook_wait_recv, true)
WAIT(GLOO_WAIT_SEND, hook_wait_send, false)

/* The pairs of a group's ranks hang on this; the shared_ptr by value is the caller's, by its address. */
typedef void (*transport_constructor)(void *, void *, int, int);

HOOK(GLOO_TRANSPORT, void, hook_transport, (void *transport, void *device, int rank, int size))
{
    transport_constructor original = ORIGINAL(GLOO_TRANSPORT, transport_constructor);
    original(transport, device, rank, size);
    rk_gloo_note_transport(transport);
}
