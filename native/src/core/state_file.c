#define _GNU_SOURCE
#include "state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "clock.h"

enum { HEADER_SPACE = 4096, STAT_LINE = 1024 };

/* Field 22 of /proc/self/stat. Read with read(2): stdio would allocate, and may be interposed. */
static uint64_t own_start_ticks(void)
{
    char line[STAT_LINE];
    int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t length = read(file, line, sizeof line - 1);
    close(file);
    if (length <= 0)
        return 0;
    line[length] = '\0';
    /* The command name may hold spaces and brackets; the fields go on after the last bracket. */
    const char *at = strrchr(line, ')');
    for (int field = 2; at != NULL && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at != NULL ? strtoull(at + 1, NULL, 10) : 0;
}

static int file_path(char *path, size_t size, const char *directory, pid_t pid)
{
    char digits[16];
    size_t count = 0;
    for (unsigned value = (unsigned)pid; value != 0 && count < sizeof digits; value /= 10)
        digits[count++] = (char)('0' + value % 10);
    size_t length = strlen(directory);
    if (length + 1 + count + sizeof ".rkhook" > size)
        return -1;
    memcpy(path, directory, length);
    path[length++] = '/';
    while (count > 0)
        path[length++] = digits[--count];
    memcpy(path + length, ".rkhook", sizeof ".rkhook");
    return 0;
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
    if (posix_fallocate(file, 0, (off_t)size) != 0) {
        unlink(path);
        close(file);
        return -1;
    }
    return file;
}

struct rk_header *rk_state_file_create(const char *directory, const struct rk_hook *hooks,
                                       uint32_t hook_count)
{
    char path[4096];
    pid_t pid = getpid();
    uint64_t hooks_at = HEADER_SPACE;
    uint64_t communicators_at = hooks_at + RK_MAX_HOOKS * sizeof(struct rk_hook);
    uint64_t slots_at = communicators_at + RK_MAX_COMMUNICATORS * sizeof(struct rk_communicator);
    uint64_t captures_at = slots_at + RK_MAX_SLOTS * sizeof(struct rk_slot);
    uint64_t events_at = captures_at + RK_MAX_CAPTURES * sizeof(struct rk_capture);
    uint64_t file_bytes = events_at + RK_EVENT_COUNT * sizeof(struct rk_event);

    if (hook_count > RK_MAX_HOOKS || !size_is_allowed(file_bytes) ||
        file_path(path, sizeof path, directory, pid) != 0)
        return NULL;
    int file = create_file(path, file_bytes);
    if (file < 0)
        return NULL;
    void *mapped = mmap(NULL, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) {
        unlink(path);
        return NULL;
    }

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
    header->hooks_at = hooks_at;
    header->communicators_at = communicators_at;
    header->slots_at = slots_at;
    header->captures_at = captures_at;
    header->events_at = events_at;
    header->event_bytes = sizeof(struct rk_event);
    header->event_count = RK_EVENT_COUNT;
    header->file_bytes = file_bytes;
    header->pid = pid;
    header->start_ticks = own_start_ticks();
    header->anchor_monotonic_ns = rk_clock_ns(CLOCK_MONOTONIC);
    header->anchor_realtime_ns = rk_clock_ns(CLOCK_REALTIME);
    memcpy((char *)mapped + hooks_at, hooks, hook_count * sizeof(struct rk_hook));
    return header;
}

void rk_state_file_detach(struct rk_header *header)
{
    if (header != NULL)
        munmap(header, header->file_bytes);
}
