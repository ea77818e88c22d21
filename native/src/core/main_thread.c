#define _GNU_SOURCE
#include "main_thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "process_stat.h"

enum { FRESH_NS = 2000000, PATH_BYTES = 64, LINE_BYTES = 96, MIN_DESCRIPTOR = 512 };

static _Atomic int file = -1;
/* Whose number it is: a program that closes all descriptors may open its own under that number. */
static _Atomic uint64_t file_device, file_inode;
static _Atomic uint64_t read_ns, run_ns, wait_ns;

void rk_main_thread_open(void)
{
    char path[PATH_BYTES] = "/proc/self/task/";
    size_t length = rk_append_number(path, strlen(path), (unsigned)getpid());
    memcpy(path + length, "/schedstat", sizeof "/schedstat");
    int opened = open(path, O_RDONLY | O_CLOEXEC);
    if (opened < 0)
        return;
    /* Out of the way of programs that close the low descriptors by number, as daemons do. */
    int high = fcntl(opened, F_DUPFD_CLOEXEC, MIN_DESCRIPTOR);
    if (high >= 0) {
        close(opened);
        opened = high;
    }
    struct stat status;
    if (fstat(opened, &status) != 0) {
        close(opened);
        return;
    }
    atomic_store(&file_device, (uint64_t)status.st_dev);
    atomic_store(&file_inode, (uint64_t)status.st_ino);
    atomic_store(&read_ns, 0);
    atomic_store(&file, opened);
}

static bool is_ours(int descriptor)
{
    struct stat status;
    return fstat(descriptor, &status) == 0 &&
           (uint64_t)status.st_dev == atomic_load_explicit(&file_device, memory_order_relaxed) &&
           (uint64_t)status.st_ino == atomic_load_explicit(&file_inode, memory_order_relaxed);
}

static void read_again(int from)
{
    char line[LINE_BYTES];
    int saved = errno;
    ssize_t length = is_ours(from) ? pread(from, line, sizeof line - 1, 0) : -1;
    errno = saved;
    if (length <= 0 || line[0] < '0' || line[0] > '9') {
        atomic_store(&file, -1);
        return;
    }
    line[length] = '\0';
    char *end = NULL;
    uint64_t run = strtoull(line, &end, 10);
    uint64_t wait = strtoull(end, &end, 10);
    atomic_store_explicit(&run_ns, run, memory_order_relaxed);
    atomic_store_explicit(&wait_ns, wait, memory_order_relaxed);
}

struct rk_main_thread_time rk_main_thread_time(uint64_t now_ns)
{
    int from = atomic_load_explicit(&file, memory_order_relaxed);
    uint64_t then = atomic_load_explicit(&read_ns, memory_order_relaxed);
    /* An operation on a device may have ended before the last reading: then that is new enough.
     * Whoever moves the time on reads; others that come meanwhile take what there is. */
    if (from >= 0 && (int64_t)(now_ns - then) > FRESH_NS &&
        atomic_compare_exchange_strong_explicit(&read_ns, &then, now_ns, memory_order_relaxed,
                                                memory_order_relaxed))
        read_again(from);
    return (struct rk_main_thread_time){
        .run_ns = atomic_load_explicit(&run_ns, memory_order_relaxed),
        .wait_ns = atomic_load_explicit(&wait_ns, memory_order_relaxed),
    };
}

void rk_main_thread_close(void)
{
    int opened = atomic_exchange(&file, -1);
    if (opened >= 0 && is_ours(opened))
        close(opened);
    atomic_store(&run_ns, 0);
    atomic_store(&wait_ns, 0);
}
