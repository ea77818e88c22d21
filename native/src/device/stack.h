/* A lock-free stack of indices into a table. The tag in the upper half changes with every push, so
 * that an index that came back in between is noticed. */
#ifndef RELKIT_DEVICE_STACK_H
#define RELKIT_DEVICE_STACK_H

#include <stdatomic.h>
#include <stdint.h>

/* Lower half: index + 1, 0 = empty. */
typedef _Atomic uint64_t rk_stack;

static inline void rk_stack_push(rk_stack *stack, _Atomic uint32_t *next, uint32_t index)
{
    uint64_t head = atomic_load_explicit(stack, memory_order_relaxed);
    uint64_t wanted;
    do {
        atomic_store_explicit(next, (uint32_t)head, memory_order_relaxed);
        wanted = ((head >> 32) + 1) << 32 | (index + 1);
    } while (!atomic_compare_exchange_weak_explicit(stack, &head, wanted, memory_order_seq_cst,
                                                    memory_order_relaxed));
}

/* Takes all at once: the newest, from which `next` leads to the older ones; index + 1. */
static inline uint32_t rk_stack_take_all(rk_stack *stack)
{
    uint64_t head = atomic_load_explicit(stack, memory_order_relaxed);
    while ((uint32_t)head != 0 &&
           !atomic_compare_exchange_weak_explicit(stack, &head, head & ~UINT64_C(0xffffffff),
                                                  memory_order_seq_cst, memory_order_relaxed))
        ;
    return (uint32_t)head;
}

#endif
