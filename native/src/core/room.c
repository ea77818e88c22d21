#define _GNU_SOURCE
#include "room.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "relkit/state_layout.h"

enum { ENTRIES_BYTES = 4096, FALLOCATE_TRIES = 100, CHUNK = 4096 };

/* As the kernel writes it: see getdents64(2). */
struct entry {
    uint64_t inode;
    int64_t offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

static int is_recorder(const char *name)
{
    const char *suffix = strrchr(name, '.');
    return suffix != NULL && suffix != name && strcmp(suffix, RK_STATE_SUFFIX) == 0;
}

int rk_recorders_in(const char *directory, int limit)
{
    /* opendir would allocate, and may be interposed. */
    _Alignas(struct entry) char entries[ENTRIES_BYTES];
    int folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int count = 0;
    if (folder < 0)
        return 0;
    long got;
    while (count < limit && (got = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0)
        for (long at = 0; at < got && count < limit;) {
            const struct entry *entry = (const struct entry *)(entries + at);
            count += is_recorder(entry->name);
            at += entry->length;
        }
    close(folder);
    return count;
}

static int write_zeros(int file, size_t size)
{
    static const char zeros[CHUNK];
    for (size_t at = 0; at < size;) {
        size_t left = size - at;
        ssize_t written = pwrite(file, zeros, left < CHUNK ? left : CHUNK, (off_t)at);
        if (written < 0 && errno != EINTR)
            return errno;
        at += written > 0 ? (size_t)written : 0;
    }
    return 0;
}

int rk_reserve(int file, size_t size)
{
    int error = EINTR;
    /* An interrupted one gives back what it had: a program with a fast timer may need several. */
    for (int i = 0; i < FALLOCATE_TRIES && error == EINTR; i++)
        error = posix_fallocate(file, 0, (off_t)size);
    if (error == 0 || error == ENOSPC || error == EDQUOT || error == EFBIG)
        return error;
    /* Interrupted for ever, forbidden, or unknown to the file system. */
    return write_zeros(file, size);
}
