/* gloo's options objects have no accessors, so their fields are read at fixed offsets, as seen in
 * PyTorch 2.13 on a 64-bit machine. An offset that is wrong in some other build
 * must show as such and do no harm: the first calls of every kind are read through the kernel and
 * checked for what can be checked (timeout, element size, buffer length, root), and one failure
 * turns reading off for the whole process. Then collectives are counted instead. The count is as
 * good as the tag as long as two worker threads do not start two collectives in swapped order. */
#include "gloo_options.h"

#include <string.h>

#include "core/communicators.h"
#include "core/safe_read.h"

enum { TRIALS = 4, OPTIONS_MAX = 160, NONE = 0 };
enum { BUFFER_LENGTH_AT = 16, BUFFER_BYTES = 24 };
#define MAX_TIMEOUT_MS (INT64_C(1) << 45)
#define MAX_PAYLOAD (UINT64_C(1) << 48)
#define MAX_RANKS (1 << 24)

/* Offsets in bytes; the shared_ptr to the context is always first. */
struct options_layout {
    uint16_t bytes;
    uint16_t tag, timeout;
    uint16_t element_size; /* bytes an element */
    uint16_t elements;     /* number of elements, where the payload is that many */
    uint16_t buffer;       /* unique_ptr<UnboundBuffer>, where the payload is that buffer */
    uint16_t root;
};

static const struct options_layout layouts[RK_HOOK_COUNT] = {
    [RK_HOOK_GLOO_ALLREDUCE] = {144, 128, 16, 88, 80, NONE, NONE},
    [RK_HOOK_GLOO_ALLGATHER] = {56, 40, 48, 32, NONE, 24, NONE},
    [RK_HOOK_GLOO_ALLGATHERV] = {80, 64, 72, 56, NONE, 24, NONE},
    [RK_HOOK_GLOO_BROADCAST] = {64, 52, 56, 40, 32, 24, 48},
    [RK_HOOK_GLOO_REDUCE] = {112, 88, 104, 40, 32, 24, 48},
    [RK_HOOK_GLOO_GATHER] = {56, 44, 48, 32, NONE, 16, 40},
    [RK_HOOK_GLOO_SCATTER] = {72, 60, 64, 48, NONE, 40, 56},
    [RK_HOOK_GLOO_ALLTOALL] = {56, 40, 48, 32, NONE, 16, NONE},
    [RK_HOOK_GLOO_ALLTOALLV] = {152, 136, 144, 128, NONE, 16, NONE},
    [RK_HOOK_GLOO_BARRIER] = {40, 24, 32, NONE, NONE, NONE, NONE},
};

/* Calls that passed the checks; TRIALS = no longer checked. */
static _Atomic uint32_t passed[RK_HOOK_COUNT];

static uint64_t word_at(const void *base, size_t offset)
{
    uint64_t word;
    memcpy(&word, (const char *)base + offset, sizeof word);
    return word;
}

static uint32_t half_at(const void *base, size_t offset)
{
    uint32_t half;
    memcpy(&half, (const char *)base + offset, sizeof half);
    return half;
}

uint64_t rk_gloo_buffer_bytes(const void *buffer)
{
    static _Atomic uint32_t trials;
    char copy[BUFFER_BYTES];
    uint64_t length;
    if (atomic_load_explicit(&trials, memory_order_relaxed) < TRIALS) {
        if (!rk_safe_read(copy, buffer, sizeof copy))
            return 0;
        atomic_fetch_add(&trials, 1);
        length = word_at(copy, BUFFER_LENGTH_AT);
    } else {
        length = word_at(buffer, BUFFER_LENGTH_AT);
    }
    return length < MAX_PAYLOAD ? length : 0;
}

static bool layout_holds(const struct options_layout *layout, const void *options, int32_t size)
{
    char copy[OPTIONS_MAX];
    if (!rk_safe_read(copy, options, layout->bytes))
        return false;
    int64_t timeout = (int64_t)word_at(copy, layout->timeout);
    if (timeout <= 0 || timeout > MAX_TIMEOUT_MS)
        return false;
    if (layout->root != NONE && half_at(copy, layout->root) >= (uint32_t)size)
        return false;
    if (layout->element_size == NONE)
        return true;
    uint64_t element = word_at(copy, layout->element_size);
    if (element == 0 || element > 16 || (element & (element - 1)) != 0)
        return false;
    if (layout->buffer == NONE)
        return word_at(copy, layout->elements) < MAX_PAYLOAD;
    char buffer[BUFFER_BYTES];
    if (!rk_safe_read(buffer, (const void *)(uintptr_t)word_at(copy, layout->buffer),
                      sizeof buffer))
        return false;
    uint64_t length = word_at(buffer, BUFFER_LENGTH_AT);
    if (length >= MAX_PAYLOAD || length % element != 0)
        return false;
    return layout->elements == NONE || word_at(copy, layout->elements) * element == length;
}

/* The group of a context that rk_hook_connect has not seen. Newer gloo has no vtable in
 * gloo::Context and starts with rank, size and base (2); older gloo has them after a vtable. */
static int unknown_context(struct rk_header *header, uint64_t context)
{
    int32_t numbers[5];
    if (!rk_safe_read(numbers, (const void *)(uintptr_t)context, sizeof numbers))
        return -1;
    for (int at = 0; at <= 2; at += 2) {
        int32_t rank = numbers[at], size = numbers[at + 1], base = numbers[at + 2];
        if (base == 2 && rank >= 0 && rank < size && size <= MAX_RANKS)
            return rk_communicator_of(header, context, rank, size);
    }
    return -1;
}

static int group_of(struct rk_header *header, uint64_t context)
{
    struct rk_thread_notes *notes = rk_thread_notes();
    uint32_t epoch = atomic_load_explicit(&rk_communicator_epoch, memory_order_acquire);
    if (notes->context == context && notes->context_epoch == epoch)
        return notes->context_index;
    /* rendezvous::Context, which rk_hook_connect sees, has its gloo::Context 8 bytes in where it
     * has a vtable that gloo::Context lacks. */
    int index = rk_communicator_find(header, context);
    if (index < 0)
        index = rk_communicator_find(header, context - 8);
    if (index < 0)
        index = unknown_context(header, context);
    if (index >= 0) {
        notes->context = context;
        notes->context_epoch = epoch;
        notes->context_index = index;
    }
    return index;
}

static bool may_read(struct rk_header *header, enum rk_hook_id hook, const void *options, int group)
{
    if (atomic_load_explicit(&header->tags_doubted, memory_order_relaxed))
        return false;
    if (atomic_load_explicit(&passed[hook], memory_order_relaxed) >= TRIALS)
        return true;
    if (!layout_holds(&layouts[hook], options, rk_communicators(header)[group].size)) {
        atomic_store(&header->tags_doubted, 1);
        return false;
    }
    atomic_fetch_add(&passed[hook], 1);
    return true;
}

void rk_gloo_describe(struct rk_scope *scope, enum rk_hook_id hook, const void *options)
{
    struct rk_header *header = scope->header;
    struct rk_op *op = &scope->op;
    const struct options_layout *layout = &layouts[hook];
    op->hook = (uint16_t)hook;
    int group = group_of(header, word_at(options, 0));
    if (group < 0) {
        atomic_fetch_add(&header->dropped, 1);
        return;
    }
    int64_t tag = -1;
    if (may_read(header, hook, options, group)) {
        tag = half_at(options, layout->tag);
        if (layout->root != NONE)
            op->peer = (int32_t)half_at(options, layout->root);
        if (layout->elements != NONE)
            op->size_bytes =
                word_at(options, layout->elements) * word_at(options, layout->element_size);
        else if (layout->buffer != NONE)
            op->size_bytes = word_at((const void *)(uintptr_t)word_at(options, layout->buffer),
                                     BUFFER_LENGTH_AT);
    }
    op->communicator = (int16_t)group;
    op->seq = rk_communicator_advance(header, group, tag);
}
