#include "pending.h"

struct rk_pending rk_pending[RK_PENDING];

static _Atomic uint32_t ever_used; /* entries at and above this are untouched */
static _Atomic uint32_t in_use;
static rk_stack unused;
static rk_stack added;

static bool take(uint32_t *index)
{
    uint64_t head = atomic_load_explicit(&unused, memory_order_acquire);
    while ((uint32_t)head != 0) {
        *index = (uint32_t)head - 1;
        uint32_t next = atomic_load_explicit(&rk_pending[*index].next, memory_order_relaxed);
        uint64_t wanted = ((head >> 32) + 1) << 32 | next;
        if (atomic_compare_exchange_weak_explicit(&unused, &head, wanted, memory_order_acq_rel,
                                                  memory_order_acquire))
            return true;
    }
    uint32_t fresh = atomic_load_explicit(&ever_used, memory_order_relaxed);
    while (fresh < RK_PENDING && !atomic_compare_exchange_weak(&ever_used, &fresh, fresh + 1))
        ;
    *index = fresh;
    return fresh < RK_PENDING;
}

bool rk_pending_add(const struct rk_op *op, void *stream, int pair, uint32_t weight)
{
    uint32_t index;
    if (!take(&index))
        return false;
    struct rk_pending *entry = &rk_pending[index];
    entry->op = *op;
    entry->stream = stream;
    entry->pair = pair;
    entry->weight = weight;
    entry->behind = 0;
    entry->begun = false;
    atomic_fetch_add_explicit(&in_use, 1, memory_order_relaxed);
    rk_stack_push(&added, &entry->next, index);
    return true;
}

uint32_t rk_pending_collect(void)
{
    uint32_t newest = rk_stack_take_all(&added);
    uint32_t oldest = 0;
    while (newest != 0) {
        struct rk_pending *entry = &rk_pending[newest - 1];
        uint32_t older = atomic_load_explicit(&entry->next, memory_order_relaxed);
        entry->behind = oldest;
        oldest = newest;
        newest = older;
    }
    return oldest;
}

bool rk_pending_is_empty(void)
{
    return (uint32_t)atomic_load(&added) == 0;
}

uint32_t rk_pending_load(void)
{
    return atomic_load_explicit(&in_use, memory_order_relaxed);
}

void rk_pending_free(uint32_t index)
{
    atomic_fetch_sub_explicit(&in_use, 1, memory_order_relaxed);
    rk_stack_push(&unused, &rk_pending[index].next, index);
}

void rk_pending_after_fork(void)
{
    atomic_store(&ever_used, 0);
    atomic_store(&in_use, 0);
    atomic_store(&unused, 0);
    atomic_store(&added, 0);
}
