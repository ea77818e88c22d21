#include "events.h"

#include <stddef.h>

/* A few at once, because the thread that finds the pool empty pays for it. */
enum { PAIRS_AT_ONCE = 8, CAPTURE_MODE_RELAXED = 2, LOCK_TRIES = 1 << 16 };

struct rk_pair rk_pairs[RK_EVENT_PAIRS];
struct rk_place rk_places[RK_PLACES];

static _Atomic uint32_t pairs_made;
static rk_stack spare; /* entries whose events were destroyed */
static atomic_flag growing = ATOMIC_FLAG_INIT;

int rk_place_index(struct rk_device_api *api, enum rk_platform vendor, void *stream)
{
    void *key = rk_place_of(api, stream);
    if (key == NULL)
        return -1;
    for (int i = 0; i < RK_PLACES; i++) {
        if (!atomic_load_explicit(&rk_places[i].ready, memory_order_acquire))
            break;
        if (rk_places[i].key == key && rk_places[i].vendor == vendor)
            return i;
    }
    /* Held for some nanoseconds, a few times in the life of a process. */
    for (int tries = 0; atomic_flag_test_and_set(&growing); tries++)
        if (tries == LOCK_TRIES)
            return -1;
    int found = -1;
    for (int i = 0; i < RK_PLACES && found < 0; i++) {
        struct rk_place *place = &rk_places[i];
        if (atomic_load_explicit(&place->ready, memory_order_acquire)) {
            if (place->key == key && place->vendor == vendor)
                found = i;
            continue;
        }
        place->api = api;
        place->key = key;
        place->vendor = vendor;
        atomic_store_explicit(&place->ready, 1, memory_order_release);
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

static bool make_pair(struct rk_place *place, int index)
{
    struct rk_pair *pair = &rk_pairs[index];
    struct rk_device_api *api = place->api;
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
    pair->place = (int32_t)(place - rk_places);
    return true;
}

/* Makes pairs in the context of the place, whatever the thread's own is, and returns one. */
static int grow(struct rk_place *place)
{
    struct rk_device_api *api = place->api;
    void *popped = NULL;
    int mode = CAPTURE_MODE_RELAXED;
    int first = RK_NO_PAIR;
    bool elsewhere = false;
    if (api->kind == RK_DRIVER_API) {
        void *current = NULL;
        elsewhere = api->place.driver.get(&current) != 0 || current != place->key;
        if (elsewhere && api->place.driver.push(place->key) != 0)
            return RK_NO_PAIR;
    }
    /* Making an event is on the list of what a thread must not do while some thread captures. */
    bool exchanged = api->exchange_capture_mode != NULL && api->exchange_capture_mode(&mode) == 0;
    for (int i = 0; i < PAIRS_AT_ONCE; i++) {
        int index = unused_index();
        if (index == RK_NO_PAIR || !make_pair(place, index))
            break;
        if (first == RK_NO_PAIR)
            first = index;
        else
            rk_stack_push(&place->free, &rk_pairs[index].next, (uint32_t)index);
    }
    if (exchanged)
        api->exchange_capture_mode(&mode);
    if (elsewhere)
        api->place.driver.pop(&popped);
    return first;
}

int rk_pair_take(int place)
{
    int index = pop(&rk_places[place].free);
    if (index == RK_NO_PAIR)
        index = grow(&rk_places[place]);
    if (index != RK_NO_PAIR)
        atomic_store_explicit(&rk_pairs[index].users, 1, memory_order_relaxed);
    return index;
}

void rk_pair_drop(int pair)
{
    struct rk_pair *dropped = &rk_pairs[pair];
    if (atomic_fetch_sub_explicit(&dropped->users, 1, memory_order_acq_rel) == 1)
        rk_stack_push(&rk_places[dropped->place].free, &dropped->next, (uint32_t)pair);
}

void rk_events_destroy(enum rk_platform vendor)
{
    for (int i = 0; i < RK_PLACES && atomic_load(&rk_places[i].ready); i++) {
        struct rk_place *place = &rk_places[i];
        if (place->vendor != vendor)
            continue;
        for (int index = pop(&place->free); index != RK_NO_PAIR; index = pop(&place->free)) {
            place->api->event_destroy(rk_pairs[index].start);
            place->api->event_destroy(rk_pairs[index].end);
            rk_stack_push(&spare, &rk_pairs[index].next, (uint32_t)index);
        }
        if (place->clock_event != NULL)
            place->api->event_destroy(place->clock_event);
        if (place->clock_stream != NULL && place->api->stream_destroy != NULL)
            place->api->stream_destroy(place->clock_stream);
        place->clock_event = place->clock_stream = NULL;
        place->clock_ns = place->tried_ns = 0;
    }
}

void rk_events_after_fork(void)
{
    for (int i = 0; i < RK_PLACES; i++) {
        atomic_store(&rk_places[i].ready, 0);
        atomic_store(&rk_places[i].free, 0);
        rk_places[i].clock_event = rk_places[i].clock_stream = NULL;
        rk_places[i].clock_ns = 0;
    }
    atomic_store(&spare, 0);
    atomic_store(&pairs_made, 0);
    atomic_flag_clear(&growing);
}
