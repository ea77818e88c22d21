#define _GNU_SOURCE
#include "ancestors.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "identity.h"
#include "process_stat.h"
#include "state_file.h"

enum { MAX_ANCESTORS = 64 };

/* A file that a dead process of the same number has left does not count. */
static bool records(const char *directory, pid_t pid, int32_t rank)
{
    char path[RK_PATH_MAX];
    struct rk_header header;
    if (rk_state_file_path(path, directory, pid) != 0)
        return false;
    int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return false;
    bool whole = pread(file, &header, sizeof header, 0) == (ssize_t)sizeof header;
    close(file);
    return whole && memcmp(header.magic, RK_MAGIC, sizeof header.magic) == 0 &&
           header.rank == rank && header.start_ticks == rk_process_stat(pid, RK_STAT_START_TICKS);
}

bool rk_ancestor_records(const char *directory, int32_t rank, pid_t top)
{
    if (!rk_proc_is_own())
        return false;
    pid_t pid = getppid();
    for (int i = 0; i < MAX_ANCESTORS && pid > 1 && pid != top; i++) {
        if (records(directory, pid, rank))
            return true;
        pid = (pid_t)rk_process_stat(pid, RK_STAT_PARENT);
    }
    return false;
}
