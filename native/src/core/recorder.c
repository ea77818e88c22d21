#define _GNU_SOURCE
#include "recorder.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "peers.h"

enum { SEARCH_AGAIN_NS = 1000000000, LINE = 64 };

/* What an operation needs stands first, in one line of the cache: between two operations of a training
 * step the caches see all of its work. */
struct thread_state {
    struct rk_slot *slot;
    uint32_t depth;
    uint32_t tid;
    uint32_t finished;   /* of the slot, as far as it is known: a guess, as is the next */
    uint32_t next_event; /* where this thread expects its next event */
    struct rk_thread_notes notes;
    uint64_t looked_ns;                     /* when a slot was last sought in vain */
    uint32_t until_sample[RK_SERIES_COUNT]; /* launches left before the next that is timed */
};

/* initial-exec: the general model may call __tls_get_addr, which allocates a thread's block on
 * first use, and that must not happen inside a signal handler or under the loader's lock. A
 * preloaded library is there at start-up, so its few bytes of static TLS are always available. */
static _Thread_local
    __attribute__((tls_model("initial-exec"), aligned(LINE))) struct thread_state thread_state;

_Atomic(struct rk_header *) rk_state;
_Atomic uint32_t rk_detaches;
_Atomic uint32_t rk_sample_every;

static pthread_key_t slot_key;
static bool slot_key_made;

/* Asks for what an operation is about to write, all at once: each line is a wait for memory, and often
 * for a page's address too, where a step's work has driven it out of the caches. */
static inline void fetch_early(struct rk_header *header, const struct thread_state *thread)
{
    struct rk_slot *slot = thread->slot;
    const char *event = (const char *)&rk_events(header)[thread->next_event % RK_EVENT_COUNT];
    __builtin_prefetch(slot, 1);
    __builtin_prefetch(&slot->flight, 1);
    __builtin_prefetch(&slot->ring[thread->finished % RK_RING_LENGTH], 1);
    __builtin_prefetch((const void *)&header->events_begun, 1);
    __builtin_prefetch(event, 1);
    __builtin_prefetch(event + sizeof(struct rk_event) - 1, 1);
}

static void store_words(rk_op_words *to, const struct rk_op *op)
{
    uint64_t words[RK_OP_WORDS];
    memcpy(words, op, sizeof words);
    /* Release on each word, instead of one fence, orders it after the odd flight_seq (or the
     * finished count) for a reader that loads with acquire. It costs nothing on x86, and thread
     * sanitizer understands it. */
    for (int i = 0; i < RK_OP_WORDS; i++)
        atomic_store_explicit(&to->word[i], words[i], memory_order_release);
}

static void set_flight(struct rk_slot *slot, const struct rk_op *op)
{
    uint64_t seq = atomic_load_explicit(&slot->flight_seq, memory_order_relaxed);
    atomic_store_explicit(&slot->flight_seq, seq + 1, memory_order_relaxed);
    store_words(&slot->flight, op);
    atomic_store_explicit(&slot->flight_seq, seq + 2, memory_order_release);
}

static void clear_flight(struct rk_slot *slot)
{
    uint64_t seq = atomic_load_explicit(&slot->flight_seq, memory_order_relaxed);
    atomic_store_explicit(&slot->flight_seq, seq + 1, memory_order_relaxed);
    atomic_store_explicit(&slot->flight.word[0], 0, memory_order_release);
    atomic_store_explicit(&slot->flight_seq, seq + 2, memory_order_release);
}

/* Leaves the slot as a new owner may take it: idle, with an even flight_seq. */
static void settle(struct rk_slot *slot)
{
    uint64_t seq = atomic_load_explicit(&slot->flight_seq, memory_order_relaxed);
    if (seq % 2 != 0)
        atomic_store_explicit(&slot->flight_seq, seq + 1, memory_order_release);
    clear_flight(slot);
}

/* Runs as the destructor of slot_key when a thread ends. */
static void release_slot(void *value)
{
    struct rk_slot *slot = value;
    if (slot != NULL && slot == thread_state.slot) {
        thread_state.slot = NULL;
        atomic_store_explicit(&slot->owner, 0, memory_order_release);
    }
}

static bool thread_is_gone(pid_t pid, uint32_t tid)
{
    return syscall(SYS_tgkill, pid, tid, 0) != 0 && errno == ESRCH;
}

static struct rk_slot *take_slot(struct rk_header *header, uint32_t tid, bool from_the_dead)
{
    struct rk_slot *slots = rk_slots(header);
    for (uint64_t i = 0; i < RK_MAX_SLOTS; i++) {
        uint32_t owner = atomic_load_explicit(&slots[i].owner, memory_order_relaxed);
        if (owner != 0 && !(from_the_dead && thread_is_gone(header->pid, owner)))
            continue;
        if (!atomic_compare_exchange_strong(&slots[i].owner, &owner, tid))
            continue;
        settle(&slots[i]);
        uint64_t used = atomic_load(&header->slots_used);
        while (used < i + 1 && !atomic_compare_exchange_weak(&header->slots_used, &used, i + 1))
            ;
        return &slots[i];
    }
    return NULL;
}

/* The first operation of a thread: finds it a slot. errno is the caller's. */
static struct rk_slot *claim_slot(struct rk_header *header, struct thread_state *thread)
{
    int saved = errno;
    uint64_t now = rk_clock_ns(CLOCK_MONOTONIC);
    struct rk_slot *slot = NULL;
    if (slot_key_made && (thread->looked_ns == 0 || now - thread->looked_ns > SEARCH_AGAIN_NS)) {
        thread->looked_ns = now;
        if (thread->tid == 0)
            thread->tid = (uint32_t)syscall(SYS_gettid);
        slot = take_slot(header, thread->tid, false);
        if (slot == NULL)
            slot = take_slot(header, thread->tid, true);
        if (slot != NULL && pthread_setspecific(slot_key, slot) != 0) {
            atomic_store(&slot->owner, 0);
            slot = NULL;
        }
        thread->slot = slot;
        if (slot != NULL)
            thread->looked_ns = 0;
    }
    errno = saved;
    return slot;
}

void rk_recorder_start(struct rk_header *header)
{
    if (!slot_key_made)
        slot_key_made = pthread_key_create(&slot_key, release_slot) == 0;
    atomic_store_explicit(&header->ready, 1, memory_order_release);
    atomic_store_explicit(&rk_state, header, memory_order_release);
}

void rk_recorder_forget(void)
{
    struct rk_header *header = atomic_exchange(&rk_state, NULL);
    atomic_fetch_add(&rk_detaches, 1);
    thread_state.slot = NULL;
    thread_state.tid = 0;
    thread_state.looked_ns = 0;
    memset(&thread_state.notes, 0, sizeof thread_state.notes);
    if (slot_key_made)
        pthread_setspecific(slot_key, NULL);
    rk_state_file_detach(header);
}

void rk_append_event(struct rk_header *header, const struct rk_op *op)
{
    uint64_t place = atomic_fetch_add_explicit(&header->events_begun, 1, memory_order_relaxed);
    thread_state.next_event = (uint32_t)place + 1;
    struct rk_event *event = &rk_events(header)[place % RK_EVENT_COUNT];
    /* A writer that was stopped for a whole round still holds its row (ticket 0): what comes then
     * is dropped, so that no row is ever written by two. In the first round every row is free. */
    uint64_t ticket = atomic_load_explicit(&event->ticket, memory_order_relaxed);
    if (place >= RK_EVENT_COUNT &&
        (ticket == 0 || ticket > place ||
         !atomic_compare_exchange_strong_explicit(&event->ticket, &ticket, 0, memory_order_acquire,
                                                  memory_order_relaxed))) {
        atomic_fetch_add_explicit(&header->dropped, 1, memory_order_relaxed);
        return;
    }
    store_words(&event->op, op);
    atomic_store_explicit(&event->busy_ns,
                          atomic_load_explicit(&header->busy_ns, memory_order_relaxed),
                          memory_order_release);
    atomic_store_explicit(&event->ticket, place + 1, memory_order_release);
}

/* Apart, so that collectives and products do not pay for its registers. */
static __attribute__((noinline)) void account_transfer(struct rk_header *header,
                                                       const struct rk_op *op)
{
    rk_append_event(header, op);
    if (op->seq >= 0 && (op->flags & RK_OP_FAILED) == 0)
        rk_peer_done(header, op);
}

/* What its row's kind has beside the ring: work adds to busy_ns, communication is an event. */
static void account(struct rk_header *header, const struct rk_op *op, uint32_t weight)
{
    const struct rk_hook *row = &rk_hooks(header)[op->hook];
    if (row->kind == RK_COLLECTIVE)
        rk_append_event(header, op);
    else if (row->kind == RK_P2P)
        account_transfer(header, op);
    else if (row->kind == RK_GEMM || row->kind == RK_KERNEL)
        atomic_fetch_add_explicit(&header->busy_ns, (op->end_ns - op->start_ns) * weight,
                                  memory_order_relaxed);
}

void rk_record(struct rk_header *header, struct rk_slot *slot, const struct rk_op *op,
               uint32_t weight)
{
    uint64_t finished = atomic_load_explicit(&slot->finished, memory_order_relaxed);
    store_words(&slot->ring[finished % RK_RING_LENGTH], op);
    atomic_store_explicit(&slot->last_finish_ns, op->end_ns, memory_order_release);
    atomic_store_explicit(&slot->finished, finished + 1, memory_order_release);
    thread_state.finished = (uint32_t)finished + 1;
    account(header, op, weight);
}

struct rk_scope rk_enter(void)
{
    struct rk_scope scope;
    scope.slot = NULL;
    scope.returned = false;
    scope.begun = false;
    struct thread_state *thread = &thread_state;
    /* gloo's collectives call its send and receive, MKL's batches call its gemm: the outermost
     * call is the operation, the others only pass through. */
    if (thread->depth++ != 0)
        return scope;
    scope.header = atomic_load_explicit(&rk_state, memory_order_acquire);
    if (scope.header == NULL)
        return scope;
    scope.slot = thread->slot;
    if (scope.slot == NULL) {
        scope.slot = claim_slot(scope.header, thread);
        if (scope.slot == NULL) {
            atomic_fetch_add_explicit(&scope.header->dropped, 1, memory_order_relaxed);
            return scope;
        }
    }
    fetch_early(scope.header, thread);
    scope.op = (struct rk_op){.seq = -1, .communicator = -1, .peer = -1, .tid = thread->tid};
    return scope;
}

void rk_begin(struct rk_scope *scope)
{
    struct rk_slot *slot = scope->slot;
    __builtin_prefetch(&rk_hooks(scope->header)[scope->op.hook], 0);
    scope->begun = true;
    scope->detaches = atomic_load_explicit(&rk_detaches, memory_order_relaxed);
    scope->op.start_ns = rk_clock_ns(CLOCK_MONOTONIC);
    uint64_t started = atomic_load_explicit(&slot->started, memory_order_relaxed);
    atomic_store_explicit(&slot->started, started + 1, memory_order_relaxed);
    set_flight(slot, &scope->op);
}

static void count_one(struct rk_slot *slot)
{
    uint64_t counted = atomic_load_explicit(&slot->counted, memory_order_relaxed);
    atomic_store_explicit(&slot->counted, counted + 1, memory_order_relaxed);
}

void rk_count(struct rk_scope *scope)
{
    count_one(scope->slot);
}

void rk_leave(struct rk_scope *scope)
{
    thread_state.depth--;
    /* After a fork inside the real call the slot belongs to the parent and is unmapped here. */
    if (!scope->begun ||
        scope->detaches != atomic_load_explicit(&rk_detaches, memory_order_relaxed))
        return;
    struct rk_slot *slot = scope->slot;
    struct rk_op *op = &scope->op;
    /* Again: a collective of milliseconds is work that drives things out of the caches, too. */
    fetch_early(scope->header, &thread_state);
    op->end_ns = rk_clock_ns(CLOCK_MONOTONIC);
    if (!scope->returned)
        op->flags |= RK_OP_FAILED;
    rk_record(scope->header, slot, op, 1);
    clear_flight(slot);
}

uint32_t rk_thread_id(void)
{
    if (thread_state.tid == 0)
        thread_state.tid = (uint32_t)syscall(SYS_gettid);
    return thread_state.tid;
}

bool rk_inside(void)
{
    return thread_state.depth != 0;
}

struct rk_thread_notes *rk_thread_notes(void)
{
    return &thread_state.notes;
}

void rk_hand_over(struct rk_scope *scope)
{
    scope->begun = false;
    if (scope->detaches == atomic_load_explicit(&rk_detaches, memory_order_relaxed))
        clear_flight(scope->slot);
}

void rk_add_started(struct rk_slot *slot, int64_t count)
{
    uint64_t started = atomic_load_explicit(&slot->started, memory_order_relaxed);
    atomic_store_explicit(&slot->started, started + (uint64_t)count, memory_order_relaxed);
}

void rk_withdraw(struct rk_scope *scope)
{
    rk_hand_over(scope);
    rk_add_started(scope->slot, -1);
    rk_count(scope);
}

bool rk_pass_enter(enum rk_series series)
{
    struct thread_state *thread = &thread_state;
    if (thread->depth++ != 0)
        return false;
    struct rk_slot *slot = thread->slot;
    if (slot == NULL) {
        struct rk_header *header = atomic_load_explicit(&rk_state, memory_order_acquire);
        if (header == NULL)
            return false;
        slot = claim_slot(header, thread);
        if (slot == NULL) {
            atomic_fetch_add_explicit(&header->dropped, 1, memory_order_relaxed);
            return false;
        }
    }
    uint32_t every = atomic_load_explicit(&rk_sample_every, memory_order_relaxed);
    /* A graph is hundreds of kernels at once, and worth its two events. */
    if (every != 0 && (series == RK_SERIES_GRAPH || ++thread->until_sample[series] >= every)) {
        thread->until_sample[series] = 0;
        return true;
    }
    count_one(slot);
    return false;
}

void rk_pass_leave(void)
{
    thread_state.depth--;
}

void rk_pass_count(bool timed)
{
    struct rk_slot *slot = thread_state.slot;
    if (slot == NULL)
        return;
    if (timed)
        rk_add_started(slot, 1);
    else
        count_one(slot);
}

struct rk_slot *rk_device_slot(void)
{
    struct rk_header *header = atomic_load_explicit(&rk_state, memory_order_acquire);
    if (header == NULL)
        return NULL;
    struct rk_slot *slot = take_slot(header, rk_thread_id(), false);
    return slot != NULL ? slot : take_slot(header, rk_thread_id(), true);
}

void rk_device_show(struct rk_slot *slot, const struct rk_op *op)
{
    set_flight(slot, op);
}

void rk_device_hide(struct rk_slot *slot)
{
    clear_flight(slot);
}
