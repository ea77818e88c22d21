/* Which communicator is which group of ranks, on every rank by the same name. */
#define _GNU_SOURCE
#include "transfer_communicators.h"

#include <dlfcn.h>
#include <stddef.h>

#include "core/communicators.h"
#include "core/recorder.h"
#include "device/aborts.h"
#include "loader/loaded.h"
#include "loader/originals.h"

typedef int (*number_query)(void *communicator, int32_t *number);

static _Atomic uint32_t splits[RK_MAX_COMMUNICATORS];

uint64_t rk_hash(uint64_t hash, const void *bytes, uint64_t count)
{
    const unsigned char *at = bytes;
    for (uint64_t i = 0; i < count; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* A function of the library that has this one. */
static uintptr_t sibling(struct rk_sibling *known, uintptr_t of, const char *name)
{
    uint32_t unloads = atomic_load_explicit(&rk_unloads, memory_order_relaxed);
    uintptr_t function = atomic_load_explicit(&known->function, memory_order_acquire);
    if (name == NULL || (function != 0 && atomic_load(&known->unloads) == unloads))
        return function;
    function = rk_function_beside(of, name);
    if (function == 0)
        function = (uintptr_t)rk_dlsym(RTLD_DEFAULT, name);
    atomic_store(&known->unloads, unloads);
    atomic_store_explicit(&known->function, function, memory_order_release);
    return function;
}

static bool ask(struct rk_sibling *known, uintptr_t of, const char *name, void *communicator,
                int32_t *number)
{
    number_query query = (number_query)sibling(known, of, name);
    return query != NULL && query(communicator, number) == 0;
}

static int enter(struct rk_header *header, struct rk_transfer_library *library, void *communicator,
                 uintptr_t original, int32_t rank, int32_t size)
{
    if (rank < 0 && !ask(&library->rank_function, original, library->rank, communicator, &rank))
        return -1;
    if (size < 0 && !ask(&library->count_function, original, library->count, communicator, &size))
        return -1;
    return rk_communicator_of(header, (uint64_t)(uintptr_t)communicator, rank, size);
}

static void name_it(struct rk_header *header, int index, uint64_t name)
{
    char digits[16];
    for (int i = 15; i >= 0; i--, name >>= 4)
        digits[i] = "0123456789abcdef"[name & 15];
    rk_communicator_name(header, index, digits, sizeof digits);
}

static void offer_abort(struct rk_transfer_library *library, void *communicator, uintptr_t original)
{
    rk_abort_function abort =
        (rk_abort_function)sibling(&library->abort_function, original, library->abort);
    if (abort != NULL)
        rk_aborts_add(communicator, abort);
}

void rk_communicator_enter(const struct rk_new_communicator *created)
{
    void *communicator = *created->where;
    struct rk_header *header = atomic_load_explicit(&rk_state, memory_order_acquire);
    if (communicator == NULL || header == NULL)
        return;
    /* An address that comes round again is another group. */
    rk_communicator_retire(header, (uint64_t)(uintptr_t)communicator);
    int index = enter(header, created->library, communicator, created->original, created->rank,
                      created->size);
    if (index >= 0 && created->name != 0)
        name_it(header, index, created->name);
    if (index >= 0)
        atomic_store(&splits[index], 0);
    offer_abort(created->library, communicator, created->original);
}

int rk_transfer_communicator(struct rk_header *header, struct rk_transfer_library *library,
                             void *communicator, uintptr_t original)
{
    struct rk_thread_notes *notes = rk_thread_notes();
    uint64_t context = (uint64_t)(uintptr_t)communicator;
    uint32_t epoch = atomic_load_explicit(&rk_communicator_epoch, memory_order_acquire);
    if (notes->context == context && notes->context_epoch == epoch)
        return notes->context_index;
    if (communicator == NULL)
        return -1;
    int index = rk_communicator_find(header, context);
    if (index < 0) {
        /* Made by a call that is not in the table. */
        index = enter(header, library, communicator, original, -1, -1);
        if (index >= 0)
            offer_abort(library, communicator, original);
    }
    if (index >= 0) {
        notes->context = context;
        notes->context_epoch = epoch;
        notes->context_index = index;
    }
    return index;
}

uint64_t rk_split_name(void *communicator, int64_t color)
{
    struct rk_header *header = atomic_load_explicit(&rk_state, memory_order_acquire);
    int parent =
        header != NULL ? rk_communicator_find(header, (uint64_t)(uintptr_t)communicator) : -1;
    if (parent < 0)
        return 0;
    const struct rk_communicator *entry = &rk_communicators(header)[parent];
    uint32_t named = atomic_load_explicit(&entry->named, memory_order_acquire);
    uint32_t count = atomic_fetch_add(&splits[parent], 1);
    if (named == 0)
        return 0;
    uint64_t hash = rk_hash(RK_HASH_START, entry->name, named);
    hash = rk_hash(hash, &color, sizeof color);
    return rk_hash(hash, &count, sizeof count);
}

bool rk_communicator_ends(void *communicator)
{
    struct rk_header *header = atomic_load_explicit(&rk_state, memory_order_acquire);
    if (header != NULL && communicator != NULL)
        rk_communicator_retire(header, (uint64_t)(uintptr_t)communicator);
    return rk_aborts_remove(communicator);
}
