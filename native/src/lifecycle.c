#define _GNU_SOURCE
#include "lifecycle.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "core/recorder.h"
#include "device/timing.h"
#include "loader/platforms.h"
#include "requests/capture.h"
#include "requests/own_stack.h"
#include "requests/release.h"
#include "requests/unwinder.h"
#include "table/hook_rows.h"
#include "transfers/transfer_groups.h"

enum { WAIT_STEP_NS = 50000, WAIT_STEPS = 200 };

_Atomic int rk_progress;

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

static void let_the_launcher_look(void)
{
    /* Under yama ptrace_scope 1 only an ancestor may attach; the collectors that the launcher
     * starts are its children, which this covers too. Harmless where there is no yama. */
    int32_t tracer = number_from("RELKIT_TRACER_PID", 0);
    if (tracer > 1)
        prctl(PR_SET_PTRACER, (unsigned long)tracer, 0, 0, 0);
}

static void start(void)
{
    rk_unwind_prepare();
    rk_platforms_configure();
    rk_timing_configure();
    const char *disable = getenv("RELKIT_HOOK_DISABLE");
    if (disable != NULL && strcmp(disable, "1") == 0)
        return;
    const char *directory = getenv("RELKIT_HOOK_DIR");
    if (directory == NULL || directory[0] != '/')
        return;
    static _Atomic int watching_forks;
    if (atomic_exchange(&watching_forks, 1) == 0 &&
        pthread_atfork(NULL, NULL, after_fork_in_child) != 0)
        return;
    struct rk_header *header = rk_state_file_create(directory, rk_hook_rows, RK_HOOK_COUNT);
    if (header == NULL)
        return;
    header->rank = number_from("RANK", -1);
    header->local_rank = number_from("LOCAL_RANK", -1);
    header->world_size = number_from("WORLD_SIZE", -1);
    let_the_launcher_look();
    rk_platforms_publish(header);
    rk_capture_offer(header);
    rk_recorder_start(header);
}

/* Another thread makes the first hooked call at this very moment. Its set-up takes well under a
 * millisecond; if that is not so, go on unrecorded rather than wait. */
static void wait_a_little(void)
{
    struct timespec pause = {0, WAIT_STEP_NS};
    for (int i = 0; i < WAIT_STEPS && atomic_load(&rk_progress) == RK_STARTING; i++)
        nanosleep(&pause, NULL);
}

void rk_initialise_slowly(void)
{
    int saved = errno;
    int not_started = RK_NOT_STARTED;
    if (atomic_compare_exchange_strong(&rk_progress, &not_started, RK_STARTING)) {
        start();
        atomic_store_explicit(&rk_progress, RK_STARTED, memory_order_release);
    } else {
        wait_a_little();
    }
    errno = saved;
}
