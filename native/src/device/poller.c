/* One pass asks each busy stream for its oldest operation, then the thread sleeps: shorter while
 * many operations wait for their end to be seen, longer while nothing happens, and without a time
 * limit once nothing has been pending for a while. It holds `working` during a pass, so that who
 * resets a device, or ends the process, can keep it away from the device. */
#define _GNU_SOURCE
#include "poller.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "aborts.h"
#include "core/clock.h"
#include "events.h"
#include "pending.h"
#include "stream_queues.h"

enum { NEVER, STARTING, RUNNING, FAILED };
enum { AWAKE, NAPPING, ASLEEP };

#define SHORTEST_NS UINT64_C(50000)
#define BUSY_LONGEST_NS UINT64_C(2000000)
#define LONGEST_NS UINT64_C(5000000)
#define LINGER_NS UINT64_C(1000000000)
#define EXIT_PATIENCE_NS UINT64_C(100000000)

/* So many pending operations make the events run short. */
enum { CROWD = RK_EVENT_PAIRS / 4, STACK_BYTES = 1 << 20, CAPTURE_MODE_RELAXED = 2 };

static _Atomic int state;
static _Atomic uint32_t sleeping;
static _Atomic uint32_t release_wanted; /* generation */
static _Atomic uint32_t release_taken;
static _Atomic bool leaving;
static atomic_flag working = ATOMIC_FLAG_INIT;
static _Atomic bool registered; /* with atexit */

static void sleep_on(uint32_t how, uint64_t limit_ns)
{
    struct timespec limit = {(time_t)(limit_ns / 1000000000u), (long)(limit_ns % 1000000000u)};
    atomic_store(&sleeping, how);
    bool wanted = atomic_load(&release_wanted) != atomic_load(&release_taken);
    if (!wanted && (how == NAPPING || rk_pending_is_empty()))
        syscall(SYS_futex, &sleeping, FUTEX_WAIT_PRIVATE, how, limit_ns != 0 ? &limit : NULL);
    atomic_store(&sleeping, AWAKE);
}

static void wake(void)
{
    atomic_store(&sleeping, AWAKE);
    syscall(SYS_futex, &sleeping, FUTEX_WAKE_PRIVATE, 1);
}

void rk_poller_note(void)
{
    if (atomic_load(&sleeping) == ASLEEP)
        wake();
}

bool rk_poller_release(uint32_t generation)
{
    if (atomic_load(&state) != RUNNING || rk_aborts_live() == 0)
        return false;
    atomic_store(&release_wanted, generation);
    wake();
    return true;
}

static bool begin_work(uint64_t patience_ns)
{
    struct timespec pause = {0, 100000};
    uint64_t end = rk_clock_ns(CLOCK_MONOTONIC) + patience_ns;
    while (atomic_flag_test_and_set_explicit(&working, memory_order_acquire)) {
        if (rk_clock_ns(CLOCK_MONOTONIC) >= end)
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

static void end_work(void)
{
    atomic_flag_clear_explicit(&working, memory_order_release);
}

static uint64_t next_period(uint64_t period_ns, struct rk_stream_queues_pass pass)
{
    if (rk_pending_load() > CROWD)
        return SHORTEST_NS;
    uint64_t longest = pass.finished != 0 ? BUSY_LONGEST_NS : LONGEST_NS;
    period_ns = pass.finished != 0 ? period_ns + period_ns / 4 : 2 * period_ns;
    return period_ns < longest ? period_ns : longest;
}

/* Any thread that captures a graph forbids the others to ask events, unless they say that they know
 * what they do. */
static void relax(void)
{
    static bool relaxed[RK_PLATFORM_COUNT];
    for (int i = 0; i < RK_PLATFORM_COUNT; i++) {
        struct rk_device_api *api = rk_device_known((enum rk_platform)i);
        int mode = CAPTURE_MODE_RELAXED;
        if (api == NULL || relaxed[i])
            continue;
        relaxed[i] = true;
        if (api->exchange_capture_mode != NULL)
            api->exchange_capture_mode(&mode);
    }
}

static bool start_thread(void *(*body)(void *), void *argument)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    /* The program's signals are for the program's threads. Only the one that asks for stacks stays
     * open. */
    sigfillset(&all);
    struct rk_header *header = atomic_load(&rk_state);
    int request = header != NULL ? atomic_load(&header->request_signal) : 0;
    if (request != 0)
        sigdelset(&all, request);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&thread, &attributes, body, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

static void serve_requests(void)
{
    uint32_t wanted = atomic_load(&release_wanted);
    if (wanted == atomic_load(&release_taken))
        return;
    atomic_store(&release_taken, wanted);
    rk_aborts_run(wanted, start_thread);
}

static void *poll_for_ever(void *unused)
{
    (void)unused;
    prctl(PR_SET_NAME, (unsigned long)"relkit-device", 0, 0, 0);
    uint64_t period_ns = SHORTEST_NS, idle_since = rk_clock_ns(CLOCK_MONOTONIC);
    while (!atomic_load(&leaving)) {
        struct rk_stream_queues_pass pass = {0, 0};
        relax();
        if (begin_work(0)) {
            pass = rk_stream_queues_poll();
            end_work();
        }
        serve_requests();
        uint64_t now = rk_clock_ns(CLOCK_MONOTONIC);
        if (pass.finished != 0 || pass.waiting != 0)
            idle_since = now;
        period_ns = next_period(period_ns, pass);
        if (now - idle_since < LINGER_NS) {
            sleep_on(NAPPING, period_ns);
        } else {
            sleep_on(ASLEEP, 0);
            period_ns = SHORTEST_NS;
            idle_since = rk_clock_ns(CLOCK_MONOTONIC);
        }
    }
    return NULL;
}

/* Registered when the first operation was timed, so after the device's runtime registered its own
 * and hence run before it: the last time at which events may be asked. Then the thread is kept away
 * from the device for good. */
static void at_exit(void)
{
    if (atomic_load(&state) != RUNNING || !begin_work(EXIT_PATIENCE_NS))
        return;
    struct rk_saved_contexts before = rk_contexts_save();
    rk_stream_queues_poll();
    rk_contexts_restore(&before);
    atomic_store(&leaving, true);
}

bool rk_poller_runs(void)
{
    int known = atomic_load_explicit(&state, memory_order_acquire);
    if (known != NEVER)
        return known == RUNNING || known == STARTING;
    if (!atomic_compare_exchange_strong(&state, &known, STARTING))
        return known == RUNNING || known == STARTING;
    int saved = errno;
    if (!atomic_exchange(&registered, true))
        atexit(at_exit);
    bool started = start_thread(poll_for_ever, NULL);
    errno = saved;
    struct rk_header *header = atomic_load(&rk_state);
    if (!started && header != NULL)
        atomic_fetch_or(&header->hook_notes, RK_NOTE_NO_POLLER);
    atomic_store_explicit(&state, started ? RUNNING : FAILED, memory_order_release);
    return started;
}

void rk_poller_forget(enum rk_platform vendor)
{
    if (atomic_load(&state) != RUNNING)
        return;
    if (!begin_work(EXIT_PATIENCE_NS)) {
        /* The thread is stuck in the driver: better no times than dead events. */
        rk_device_give_up(vendor);
        return;
    }
    struct rk_saved_contexts before = rk_contexts_save();
    rk_stream_queues_poll();
    rk_stream_queues_abandon(vendor);
    rk_events_destroy(vendor);
    rk_contexts_restore(&before);
    end_work();
}

void rk_poller_after_fork(void)
{
    atomic_store(&state, NEVER);
    atomic_store(&sleeping, AWAKE);
    atomic_store(&release_wanted, 0);
    atomic_store(&release_taken, 0);
    atomic_flag_clear(&working);
}
