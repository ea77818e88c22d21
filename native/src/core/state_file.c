#define _GNU_SOURCE
#include "state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "clock.h"
#include "identity.h"
#include "process_stat.h"
#include "room.h"

/* `<directory>/<pid><suffix>`, and `<directory>/<pid>.<namespace><suffix>` in another PID namespace than
 * the launcher's: there, other processes of the job may have the same number. The suffix is at most 16
 * bytes long. */
static int path_of(char *path, const char *directory, pid_t pid, const char *suffix)
{
    size_t length = strlen(directory);
    if (length + 48 > RK_PATH_MAX)
        return -1;
    memcpy(path, directory, length);
    path[length++] = '/';
    length = rk_append_number(path, length, (unsigned)pid);
    if (rk_is_elsewhere("RELKIT_TRACER")) {
        path[length++] = '.';
        length = rk_append_number(path, length, (unsigned)rk_pid_namespace());
    }
    memcpy(path + length, suffix, strlen(suffix) + 1);
    return 0;
}

int rk_state_file_path(char *path, const char *directory, pid_t pid)
{
    return path_of(path, directory, pid, RK_STATE_SUFFIX);
}

void rk_state_file_refuse(const char *directory, int why)
{
    char path[RK_PATH_MAX];
    /* Without contents, so that it fits where there is no space. */
    if (path_of(path, directory, getpid(), ".refused-") != 0)
        return;
    rk_append_number(path, strlen(path), (unsigned)why);
    int file = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file >= 0)
        close(file);
}

/* Growing a file beyond RLIMIT_FSIZE raises SIGXFSZ, whose default is death: look first. */
static int size_is_allowed(size_t size)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
           (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= size);
}

static int create_file(const char *path, size_t size)
{
    int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int file = open(path, flags, 0600);
    if (file < 0 && errno == EEXIST) {
        /* Of an earlier program in this same process (exec), or of a dead one whose pid came
         * round again: nobody writes there any more. */
        if (unlink(path) == 0)
            file = open(path, flags, 0600);
    }
    if (file < 0)
        return -1;
    /* Real allocation, because a sparse file on a full tmpfs raises SIGBUS when it is written. */
    int error = rk_reserve(file, size);
    if (error != 0) {
        unlink(path);
        close(file);
        errno = error;
        return -1;
    }
    return file;
}

struct rk_header *rk_state_file_create(const char *directory, const struct rk_hook *hooks,
                                       uint32_t hook_count)
{
    char path[RK_PATH_MAX];
    pid_t pid = getpid();

    errno = EFBIG;
    if (hook_count > RK_MAX_HOOKS || !size_is_allowed(RK_FILE_BYTES) ||
        rk_state_file_path(path, directory, pid) != 0)
        return NULL;
    int file = create_file(path, RK_FILE_BYTES);
    if (file < 0)
        return NULL;
    void *mapped = mmap(NULL, RK_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    int why = errno;
    close(file);
    if (mapped == MAP_FAILED) {
        unlink(path);
        errno = why;
        return NULL;
    }

    /* What is touched for the first time costs a fault of the page: not in somebody's collective. */
    madvise((char *)mapped + RK_EVENTS_AT, RK_FILE_BYTES - RK_EVENTS_AT, MADV_POPULATE_WRITE);
    struct rk_header *header = mapped;
    memcpy(header->magic, RK_MAGIC, sizeof header->magic);
    header->endian = RK_ENDIAN;
    header->version = RK_VERSION;
    header->header_bytes = sizeof(struct rk_header);
    header->hook_bytes = sizeof(struct rk_hook);
    header->communicator_bytes = sizeof(struct rk_communicator);
    header->slot_bytes = sizeof(struct rk_slot);
    header->op_bytes = sizeof(struct rk_op);
    header->capture_bytes = sizeof(struct rk_capture);
    header->hook_count = hook_count;
    header->communicator_count = RK_MAX_COMMUNICATORS;
    header->slot_count = RK_MAX_SLOTS;
    header->ring_length = RK_RING_LENGTH;
    header->capture_count = RK_MAX_CAPTURES;
    header->capture_depth = RK_CAPTURE_DEPTH;
    header->hooks_at = RK_HOOKS_AT;
    header->communicators_at = RK_COMMUNICATORS_AT;
    header->slots_at = RK_SLOTS_AT;
    header->captures_at = RK_CAPTURES_AT;
    header->events_at = RK_EVENTS_AT;
    header->event_bytes = sizeof(struct rk_event);
    header->event_count = RK_EVENT_COUNT;
    header->peers_at = RK_PEERS_AT;
    header->peer_bytes = sizeof(struct rk_peer);
    header->peer_count = RK_MAX_PEERS;
    header->file_bytes = RK_FILE_BYTES;
    header->pid = pid;
    header->start_ticks = rk_process_stat(0, RK_STAT_START_TICKS);
    header->pid_namespace = rk_pid_namespace();
    header->anchor_monotonic_ns = rk_clock_ns(CLOCK_MONOTONIC);
    header->anchor_realtime_ns = rk_clock_ns(CLOCK_REALTIME);
    memcpy(rk_hooks(header), hooks, hook_count * sizeof(struct rk_hook));
    return header;
}

void rk_state_file_detach(struct rk_header *header)
{
    if (header != NULL)
        munmap(header, header->file_bytes);
}
