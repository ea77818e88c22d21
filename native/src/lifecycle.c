#define _GNU_SOURCE
#include "lifecycle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "core/ancestors.h"
#include "core/identity.h"
#include "core/recorder.h"
#include "core/room.h"
#include "device/timing.h"
#include "loader/platforms.h"
#include "requests/capture.h"
#include "requests/own_stack.h"
#include "requests/release.h"
#include "requests/unwinder.h"
#include "table/hook_rows.h"
#include "transfers/transfer_groups.h"

/* What pthread_atfork is in glibc. Weak, so that this library also loads where there is none, as in
 * a program linked with musl. */
extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *)
    __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

enum { WAIT_STEP_NS = 50000, WAIT_STEPS = 200 };

_Atomic int rk_progress;

/* The process that loaded this library, and its rank then. */
static pid_t loaded_pid;
static int32_t loaded_rank = -1;

static int32_t number_from(const char *variable, int32_t otherwise)
{
    const char *text = getenv(variable);
    if (text == NULL || *text == '\0')
        return otherwise;
    char *end = NULL;
    long value = strtol(text, &end, 10);
    return *end == '\0' && value >= 0 && value <= INT32_MAX ? (int32_t)value : otherwise;
}

/* The child has one thread and the parent's mapping. Whatever it does must not show in the
 * parent's file; its own first hooked call makes its own file. */
static void after_fork_in_child(void)
{
    rk_recorder_forget();
    rk_release_after_fork();
    rk_own_stacks_after_fork();
    rk_transfers_after_fork();
    rk_device_after_fork();
    atomic_store(&rk_progress, RK_NOT_STARTED);
}

bool rk_libc_is_glibc(void)
{
    return __register_atfork != NULL;
}

void rk_was_loaded(void)
{
    loaded_pid = getpid();
    loaded_rank = number_from("RANK", -1);
}

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL && strcmp(value, "1") == 0;
}

/* Set as long as this process only waits to become a rank: relkit/launch/warm_standby. */
static bool is_standby(void)
{
    return getenv("RELKIT_STANDBY") != NULL;
}

bool rk_hook_is_disabled(void)
{
    return is_set("RELKIT_HOOK_DISABLE");
}

/* Whether this process only helps a rank, such as a loader of its data: there may be hundreds of
 * them in a job's life, and nobody waits for what they compute. A process with a rank of its own is
 * none, however it was started. */
static bool is_helper(const char *directory)
{
    int32_t rank = number_from("RANK", -1);
    if (is_set("RELKIT_HOOK_CHILDREN"))
        return false;
    bool was_forked = loaded_pid != 0 && getpid() != loaded_pid;
    return (was_forked && rank == loaded_rank) ||
           rk_ancestor_records(directory, rank, rk_process_named("RELKIT_TRACER"));
}

/* What only a rank does. */
static bool communicates(enum rk_hook_id hook)
{
    uint32_t kind = rk_hook_rows[hook].kind;
    return kind == RK_COLLECTIVE || kind == RK_P2P || hook == RK_HOOK_MARK_STEP;
}

static bool is_launchers_child(void)
{
    pid_t launcher = rk_process_named("RELKIT_TRACER");
    return launcher != 0 && getppid() == launcher;
}

/* The launcher counts on its own children only. */
static bool is_one_too_many(const char *directory)
{
    int32_t limit = number_from("RELKIT_HOOK_FILES", 0);
    return limit > 0 && !is_launchers_child() && rk_recorders_in(directory, limit) >= limit;
}

static void let_the_launcher_look(void)
{
    /* Under yama ptrace_scope 1 only an ancestor may attach; the collectors that the launcher
     * starts are its children, which this covers too. Harmless where there is no yama. */
    pid_t tracer = rk_process_named("RELKIT_TRACER");
    if (tracer > 1)
        prctl(PR_SET_PTRACER, (unsigned long)tracer, 0, 0, 0);
}

static bool watch_forks(void)
{
    static _Atomic int watching;
    return atomic_exchange(&watching, 1) != 0 ||
           __register_atfork(NULL, NULL, after_fork_in_child, __dso_handle) == 0;
}

static void start(const char *directory)
{
    if (is_one_too_many(directory)) {
        rk_state_file_refuse(directory, RK_TOO_MANY_FILES);
        return;
    }
    struct rk_header *header = rk_state_file_create(directory, rk_hook_rows, RK_HOOK_COUNT);
    if (header == NULL) {
        rk_state_file_refuse(directory, errno);
        return;
    }
    header->rank = number_from("RANK", -1);
    header->local_rank = number_from("LOCAL_RANK", -1);
    header->world_size = number_from("WORLD_SIZE", -1);
    let_the_launcher_look();
    rk_platforms_publish(header);
    rk_capture_offer(header);
    rk_recorder_start(header);
}

static enum rk_progress begin(enum rk_hook_id hook)
{
    rk_unwind_prepare();
    rk_platforms_configure();
    rk_timing_configure();
    const char *directory = getenv("RELKIT_HOOK_DIR");
    if (!rk_libc_is_glibc() || rk_hook_is_disabled() || directory == NULL || directory[0] != '/' ||
        !watch_forks())
        return RK_STARTED;
    if (is_standby())
        return RK_WAITING;
    if (!communicates(hook) && is_helper(directory))
        return RK_WAITING;
    start(directory);
    return RK_STARTED;
}

void relkit_standby_over(void)
{
    rk_was_loaded();
    atomic_store_explicit(&rk_progress, RK_NOT_STARTED, memory_order_release);
}

/* Another thread makes the first hooked call at this very moment. Its set-up takes well under a
 * millisecond; if that is not so, go on unrecorded rather than wait. */
static void wait_a_little(void)
{
    struct timespec pause = {0, WAIT_STEP_NS};
    for (int i = 0; i < WAIT_STEPS && atomic_load(&rk_progress) == RK_STARTING; i++)
        nanosleep(&pause, NULL);
}

void rk_initialise_slowly(enum rk_hook_id hook)
{
    int saved = errno;
    int before = atomic_load(&rk_progress);
    if (before == RK_WAITING && !communicates(hook))
        return;
    if ((before == RK_NOT_STARTED || before == RK_WAITING) &&
        atomic_compare_exchange_strong(&rk_progress, &before, RK_STARTING)) {
        atomic_store_explicit(&rk_progress, begin(hook), memory_order_release);
    } else {
        wait_a_little();
    }
    errno = saved;
}
