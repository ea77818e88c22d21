/* What a training loop says of itself: a step begins; a stretch of time went into waiting for input,
 * into garbage collection or into a function that somebody wants to see.
 * Nothing is passed on: these functions are the hook's own. */
#define _GNU_SOURCE
#include "core/clock.h"
#include "core/recorder.h"
#include "lifecycle.h"
#include "table/table.h"

#define EXPORTED __attribute__((visibility("default")))

static void mark(enum rk_hook_id hook, int64_t seq, uint64_t start_ns, uint64_t end_ns,
                 uint64_t unmarked)
{
    rk_initialise(hook);
    struct rk_header *header = atomic_load_explicit(&rk_state, memory_order_acquire);
    if (header == NULL || end_ns < start_ns)
        return;
    struct rk_op op = {.start_ns = start_ns,
                       .end_ns = end_ns,
                       .seq = seq,
                       .size_bytes = unmarked,
                       .tid = rk_thread_id(),
                       .hook = (uint16_t)hook,
                       .communicator = -1,
                       .peer = -1};
    rk_append_event(header, &op);
}

EXPORTED void relkit_mark_step(uint64_t number);
EXPORTED void relkit_mark_step(uint64_t number)
{
    uint64_t now = rk_clock_ns(CLOCK_MONOTONIC);
    mark(RK_HOOK_MARK_STEP, (int64_t)number, now, now, 0);
}

EXPORTED void relkit_mark_input(uint64_t start_ns, uint64_t end_ns);
EXPORTED void relkit_mark_input(uint64_t start_ns, uint64_t end_ns)
{
    mark(RK_HOOK_MARK_INPUT, -1, start_ns, end_ns, 0);
}

EXPORTED void relkit_mark_gc(uint64_t start_ns, uint64_t end_ns);
EXPORTED void relkit_mark_gc(uint64_t start_ns, uint64_t end_ns)
{
    mark(RK_HOOK_MARK_GC, -1, start_ns, end_ns, 0);
}

/* `number`: which function, as relkit/hook/traced_calls.py numbers them; `unmarked`: calls of it since
 * the last mark that have none. */
EXPORTED void relkit_mark_call(uint64_t number, uint64_t start_ns, uint64_t end_ns,
                               uint64_t unmarked);
EXPORTED void relkit_mark_call(uint64_t number, uint64_t start_ns, uint64_t end_ns,
                               uint64_t unmarked)
{
    mark(RK_HOOK_MARK_CALL, (int64_t)number, start_ns, end_ns, unmarked);
}
