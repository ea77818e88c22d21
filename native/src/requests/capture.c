#define _GNU_SOURCE
#include "capture.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/recorder.h"
#include "device/poller.h"
#include "loader/loaded.h"
#include "own_stack.h"
#include "release.h"
#include "sigaction.h"
#include "unwinder.h"

/* A handler that finds an entry busy (an older one that was stopped half-way) takes the next. */
enum { ENTRY_TRIES = 8 };

static struct rk_capture *take_entry(struct rk_header *header)
{
    for (int attempt = 0; attempt < ENTRY_TRIES; attempt++) {
        uint32_t ticket = atomic_fetch_add(&header->tickets, 1);
        struct rk_capture *entry = &rk_captures(header)[ticket % RK_MAX_CAPTURES];
        uint32_t seq = atomic_load(&entry->seq);
        if (seq % 2 == 0 && atomic_compare_exchange_strong(&entry->seq, &seq, seq + 1))
            return entry;
    }
    return NULL;
}

static void capture(struct rk_header *header, uint32_t generation, const void *context)
{
    uint64_t begin = rk_clock_ns(CLOCK_MONOTONIC);
    struct rk_capture *entry = take_entry(header);
    if (entry == NULL)
        return;
    uintptr_t addresses[RK_CAPTURE_DEPTH];
    bool truncated = false;
    int depth = rk_unwind(context, addresses, RK_CAPTURE_DEPTH, &truncated);
    for (int i = 0; i < depth; i++)
        atomic_store_explicit(&entry->address[i], addresses[i], memory_order_release);
    atomic_store_explicit(&entry->generation, generation, memory_order_release);
    atomic_store_explicit(&entry->tid, (uint32_t)syscall(SYS_gettid), memory_order_release);
    atomic_store_explicit(&entry->depth, (uint32_t)depth, memory_order_release);
    atomic_store_explicit(&entry->truncated, truncated, memory_order_release);
    atomic_store_explicit(&entry->begin_ns, begin, memory_order_release);
    atomic_store_explicit(&entry->end_ns, rk_clock_ns(CLOCK_MONOTONIC), memory_order_release);
    atomic_fetch_add(&entry->seq, 1);
}

struct request {
    struct rk_header *header;
    uint64_t value;
    const void *context;
};

static void serve(void *argument)
{
    const struct request *request = argument;
    struct rk_header *header = request->header;
    uint32_t generation = (uint32_t)request->value;
    switch (request->value >> 32 & 0xffff) {
    case RK_REQUEST_CAPTURE:
        capture(header, generation, request->context);
        break;
    case RK_REQUEST_RELEASE:
        atomic_store(&header->released, rk_release_sockets());
        /* Communicators are aborted by a thread of ours, which then says so. */
        if (!rk_poller_release(generation))
            atomic_store(&header->released_generation, generation);
        break;
    default:
        break;
    }
}

/* Small, as it runs where the thread's own stack ends. */
static void on_request(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    int saved = errno;
    struct request request = {atomic_load(&rk_state), (uint64_t)(uintptr_t)info->si_value.sival_ptr,
                              context};
    /* Only requests of the collector, which come with a value, count. In the child of a fork there
     * is no header, and nothing to do. */
    if (request.header != NULL && info->si_code == SI_QUEUE &&
        request.value >> 48 == RK_REQUEST_MAGIC && !rk_call_on_own_stack(serve, &request))
        serve(&request);
    errno = saved;
}

/* From the top, because programs that want real-time signals count from SIGRTMIN; the very
 * highest are left alone, as debuggers and profilers like those. */
static _Atomic uint64_t avoided; /* bit n - 1: the program has set signal n itself */

static int pick_signal(void)
{
    for (int number = SIGRTMAX - 3; number > SIGRTMIN; number--) {
        struct sigaction current;
        if (!(atomic_load(&avoided) >> (number - 1) & 1) &&
            rk_real_sigaction(number, NULL, &current) == 0 && !(current.sa_flags & SA_SIGINFO) &&
            current.sa_handler == SIG_DFL)
            return number;
    }
    return 0;
}

static _Atomic int installed;

/* Installs the handler once for the life of the program; a forked child inherits it. */
static int install_handler(void)
{
    int number = atomic_load(&installed);
    if (number != 0)
        return number;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_request;
    /* SA_RESTART: the interrupted call goes on as if nothing had been; SA_ONSTACK: a thread with a
     * small stack of its own (a coroutine, say) may have said where handlers run. */
    action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    sigfillset(&action.sa_mask);
    number = pick_signal();
    if (number != 0 && rk_real_sigaction(number, &action, NULL) == 0)
        atomic_store(&installed, number);
    return atomic_load(&installed);
}

void rk_capture_offer(struct rk_header *header)
{
    int number = install_handler();
    if (number == 0)
        atomic_store(&header->capture_note, RK_CAPTURE_NO_SIGNAL);
    else if (!rk_unwind_is_possible())
        atomic_store(&header->capture_note, RK_CAPTURE_UNWINDER_LOCKS);
    else
        atomic_store(&header->capture_signal, number);
    atomic_store(&header->request_signal, number);
}

RK_PLAIN bool rk_capture_avoid(int number)
{
    if (number >= 1 && number <= 64)
        atomic_fetch_or(&avoided, UINT64_C(1) << (number - 1));
    return number != 0 && atomic_load(&installed) == number;
}

void rk_capture_moves(void)
{
    struct rk_header *header = atomic_load(&rk_state);
    atomic_store(&installed, 0);
    if (header == NULL)
        return;
    atomic_store(&header->capture_signal, 0);
    atomic_store(&header->request_signal, 0);
    rk_capture_offer(header);
}
