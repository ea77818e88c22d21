#include "aborts.h"

#include <stddef.h>

#include "core/recorder.h"

enum { TABLE = 512 };

/* An entry that is being filled or emptied, and one that was aborted. */
enum { FREE, HELD, LIVE, ABORTED };

static struct {
    _Atomic uint32_t state;
    _Atomic(const void *) communicator;
    _Atomic uintptr_t abort;
} table[TABLE];

/* One abort may have to wait for the work of another communicator, or for ever: each has a thread. */
static struct {
    _Atomic(const void *) communicator;
    _Atomic uintptr_t abort;
} jobs[TABLE];

static _Atomic uint32_t live;
static _Atomic uint32_t asked;      /* generation of the newest request */
static _Atomic uint32_t unfinished; /* aborts that are under way */
_Atomic uint32_t rk_aborted_count;

static int find(const void *communicator, uint32_t wanted)
{
    for (int i = 0; i < TABLE; i++)
        if (atomic_load_explicit(&table[i].communicator, memory_order_acquire) == communicator &&
            atomic_load_explicit(&table[i].state, memory_order_acquire) == wanted)
            return i;
    return -1;
}

static bool change(int at, uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong(&table[at].state, &from, to);
}

static void empty(int at)
{
    atomic_store(&table[at].communicator, NULL);
    atomic_store(&table[at].state, FREE);
}

void rk_aborts_add(void *communicator, rk_abort_function abort)
{
    /* The address of one that we aborted, which the program never ended, came round again. */
    int old = find(communicator, ABORTED);
    if (old >= 0 && change(old, ABORTED, HELD)) {
        empty(old);
        atomic_fetch_sub(&rk_aborted_count, 1);
    }
    for (int i = 0; i < TABLE; i++) {
        if (!change(i, FREE, HELD))
            continue;
        atomic_store(&table[i].abort, (uintptr_t)abort);
        atomic_store(&table[i].communicator, communicator);
        atomic_fetch_add(&live, 1);
        atomic_store(&table[i].state, LIVE);
        return;
    }
}

bool rk_aborts_remove(void *communicator)
{
    int at = find(communicator, LIVE);
    if (at >= 0 && change(at, LIVE, HELD)) {
        empty(at);
        atomic_fetch_sub(&live, 1);
        return true;
    }
    at = find(communicator, ABORTED);
    if (at >= 0 && change(at, ABORTED, HELD)) {
        empty(at);
        atomic_fetch_sub(&rk_aborted_count, 1);
        return false;
    }
    return true;
}

bool rk_aborts_lookup(const void *communicator)
{
    return find(communicator, ABORTED) >= 0;
}

uint32_t rk_aborts_live(void)
{
    return atomic_load(&live);
}

static void answer(void)
{
    struct rk_header *header = atomic_load(&rk_state);
    if (atomic_fetch_sub(&unfinished, 1) == 1 && header != NULL)
        atomic_store(&header->released_generation, atomic_load(&asked));
}

static void *abort_one(void *argument)
{
    size_t at = (size_t)(uintptr_t)argument;
    rk_abort_function abort = (rk_abort_function)atomic_load(&jobs[at].abort);
    bool aborted = abort((void *)(uintptr_t)atomic_load(&jobs[at].communicator)) == 0;
    struct rk_header *header = atomic_load(&rk_state);
    if (header != NULL && aborted)
        atomic_fetch_add(&header->released, 1);
    answer();
    return NULL;
}

void rk_aborts_run(uint32_t generation, rk_thread_starter start)
{
    atomic_store(&asked, generation);
    atomic_fetch_add(&unfinished, 1);
    for (size_t i = 0; i < TABLE; i++) {
        const void *communicator = atomic_load(&table[i].communicator);
        uintptr_t abort = atomic_load(&table[i].abort);
        /* Refused to the program first: what an abort leaves must not be touched. */
        if (abort == 0 || !change((int)i, LIVE, ABORTED))
            continue;
        atomic_fetch_add(&rk_aborted_count, 1);
        atomic_fetch_sub(&live, 1);
        atomic_fetch_add(&unfinished, 1);
        atomic_store(&jobs[i].abort, abort);
        atomic_store(&jobs[i].communicator, communicator);
        if (!start(abort_one, (void *)(uintptr_t)i))
            abort_one((void *)(uintptr_t)i);
    }
    answer();
}

void rk_aborts_after_fork(void)
{
    for (int i = 0; i < TABLE; i++)
        empty(i);
    atomic_store(&live, 0);
    atomic_store(&unfinished, 0);
    atomic_store(&rk_aborted_count, 0);
}
