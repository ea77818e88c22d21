#include "events.h"

#include <stddef.h>

/* A few at once, because the thread that finds the pool empty pays for it. */
enum { PAIRS_AT_ONCE = 8, CAPTURE_MODE_RELAXED = 2, LOCK_TRIES = 1 << 16 };

struct rk_pair rk_pairs[RK_EVENT_PAIRS];
struct rk_context rk_contexts[RK_CONTEXTS];

static _Atomic uint32_t pairs_made;
static rk_stack spare; /* entries whose events were destroyed */
static atomic_flag growing = ATOMIC_FLAG_INIT;

int rk_context_index(struct rk_device_api *api, enum rk_platform vendor, void *stream)
{
    void *key = rk_context_of(api, stream);
    if (key == NULL)
        return -1;
    for (int i = 0; i < RK_CONTEXTS; i++) {
        if (!atomic_load_explicit(&rk_contexts[i].ready, memory_order_acquire))
            break;
        if (rk_contexts[i].key == key && rk_contexts[i].vendor == vendor)
            return i;
    }
    /* Held for some nanoseconds, a few times in the life of a process. */
    for (int tries = 0; atomic_flag_test_and_set(&growing); tries++)
        if (tries == LOCK_TRIES)
            return -1;
    int found = -1;
    for (int i = 0; i < RK_CONTEXTS && found < 0; i++) {
        struct rk_context *context = &rk_contexts[i];
        if (atomic_load_explicit(&context->ready, memory_order_acquire)) {
            if (context->key == key && context->vendor == vendor)
                found = i;
            continue;
        }
        context->api = api;
        context->key = key;
        context->vendor = vendor;
        atomic_store_explicit(&context->ready, 1, memory_order_release);
        found = i;
    }
    atomic_flag_clear(&growing);
    return found;
}

static int pop(rk_stack *stack)
{
    uint64_t head = atomic_load_explicit(stack, memory_order_acquire);
    while ((uint32_t)head != 0) {
        uint32_t index = (uint32_t)head - 1;
        uint32_t next = atomic_load_explicit(&rk_pairs[index].next, memory_order_relaxed);
        uint64_t wanted = ((head >> 32) + 1) << 32 | next;
        if (atomic_compare_exchange_weak_explicit(stack, &head, wanted, memory_order_acq_rel,
                                                  memory_order_acquire))
            return (int)index;
    }
    return RK_NO_PAIR;
}

static int unused_index(void)
{
    int index = pop(&spare);
    if (index != RK_NO_PAIR)
        return index;
    uint32_t made = atomic_load_explicit(&pairs_made, memory_order_relaxed);
    while (made < RK_EVENT_PAIRS && !atomic_compare_exchange_weak(&pairs_made, &made, made + 1))
        ;
    return made < RK_EVENT_PAIRS ? (int)made : RK_NO_PAIR;
}

static bool make_pair(struct rk_context *context, int index)
{
    struct rk_pair *pair = &rk_pairs[index];
    struct rk_device_api *api = context->api;
    int error = api->event_create(&pair->start, api->event_flags);
    if (error == 0) {
        error = api->event_create(&pair->end, api->event_flags);
        if (error != 0)
            api->event_destroy(pair->start);
    }
    if (error != 0) {
        if (api->take_error != NULL)
            api->take_error();
        atomic_fetch_add(&api->faults, 1);
        rk_stack_push(&spare, &pair->next, (uint32_t)index);
        return false;
    }
    pair->context = (int32_t)(context - rk_contexts);
    return true;
}

/* Makes pairs in this context, whatever the thread's own is, and returns one. */
static int grow(struct rk_context *context)
{
    struct rk_device_api *api = context->api;
    void *popped = NULL;
    int mode = CAPTURE_MODE_RELAXED;
    int first = RK_NO_PAIR;
    bool elsewhere = false;
    if (api->kind == RK_DRIVER_API) {
        void *current = NULL;
        elsewhere = api->context.driver.get(&current) != 0 || current != context->key;
        if (elsewhere && api->context.driver.push(context->key) != 0)
            return RK_NO_PAIR;
    }
    /* Making an event is on the list of what a thread must not do while some thread captures. */
    bool exchanged = api->exchange_capture_mode != NULL && api->exchange_capture_mode(&mode) == 0;
    for (int i = 0; i < PAIRS_AT_ONCE; i++) {
        int index = unused_index();
        if (index == RK_NO_PAIR || !make_pair(context, index))
            break;
        if (first == RK_NO_PAIR)
            first = index;
        else
            rk_stack_push(&context->free, &rk_pairs[index].next, (uint32_t)index);
    }
    if (exchanged)
        api->exchange_capture_mode(&mode);
    if (elsewhere)
        api->context.driver.pop(&popped);
    return first;
}

int rk_pair_take(int context)
{
    int index = pop(&rk_contexts[context].free);
    if (index == RK_NO_PAIR)
        index = grow(&rk_contexts[context]);
    if (index != RK_NO_PAIR)
        atomic_store_explicit(&rk_pairs[index].users, 1, memory_order_relaxed);
    return index;
}

void rk_pair_drop(int pair)
{
    struct rk_pair *dropped = &rk_pairs[pair];
    if (atomic_fetch_sub_explicit(&dropped->users, 1, memory_order_acq_rel) == 1)
        rk_stack_push(&rk_contexts[dropped->context].free, &dropped->next, (uint32_t)pair);
}

void rk_events_destroy(enum rk_platform vendor)
{
    for (int i = 0; i < RK_CONTEXTS && atomic_load(&rk_contexts[i].ready); i++) {
        struct rk_context *context = &rk_contexts[i];
        if (context->vendor != vendor)
            continue;
        for (int index = pop(&context->free); index != RK_NO_PAIR; index = pop(&context->free)) {
            context->api->event_destroy(rk_pairs[index].start);
            context->api->event_destroy(rk_pairs[index].end);
            rk_stack_push(&spare, &rk_pairs[index].next, (uint32_t)index);
        }
        if (context->clock_event != NULL)
            context->api->event_destroy(context->clock_event);
        if (context->clock_stream != NULL && context->api->stream_destroy != NULL)
            context->api->stream_destroy(context->clock_stream);
        context->clock_event = context->clock_stream = NULL;
        context->clock_ns = context->tried_ns = 0;
    }
}

void rk_events_after_fork(void)
{
    for (int i = 0; i < RK_CONTEXTS; i++) {
        atomic_store(&rk_contexts[i].ready, 0);
        atomic_store(&rk_contexts[i].free, 0);
        rk_contexts[i].clock_event = rk_contexts[i].clock_stream = NULL;
        rk_contexts[i].clock_ns = 0;
    }
    atomic_store(&spare, 0);
    atomic_store(&pairs_made, 0);
    atomic_flag_clear(&growing);
}
