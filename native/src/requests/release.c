#define _GNU_SOURCE
#include "release.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "relkit/plain_stat.h"

/* A full mesh needs a socket a peer and group; untouched pages of this table cost nothing. */
enum { MAX_FD = 16384 };

/* The inode of the socket that gloo had at that descriptor. A number alone would not do: gloo
 * closes sockets where no hook sees it, and the number may come back as the store's. */
static _Atomic uint64_t socket_inode[MAX_FD];
static _Atomic int noted_end; /* descriptors at and above this were never noted */

void rk_release_note_socket(int fd)
{
    int saved = errno;
    struct stat status;
    if (fd >= 0 && fd < MAX_FD && rk_fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode)) {
        atomic_store(&socket_inode[fd], (uint64_t)status.st_ino);
        int end = atomic_load(&noted_end);
        while (end < fd + 1 && !atomic_compare_exchange_weak(&noted_end, &end, fd + 1))
            ;
    }
    errno = saved;
}

void rk_release_after_fork(void)
{
    for (int fd = atomic_exchange(&noted_end, 0) - 1; fd >= 0; fd--)
        atomic_store(&socket_inode[fd], 0);
}

uint32_t rk_release_sockets(void)
{
    uint32_t released = 0;
    int end = atomic_load(&noted_end);
    for (int fd = 0; fd < end; fd++) {
        uint64_t inode = atomic_load(&socket_inode[fd]);
        struct stat status;
        if (inode == 0 || rk_fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode) ||
            (uint64_t)status.st_ino != inode)
            continue;
        /* Never the listener: gloo's accept would fail with an exception that nobody catches,
         * and that ends the process. */
        int listening = 1;
        socklen_t size = sizeof listening;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening)
            continue;
        if (shutdown(fd, SHUT_RDWR) == 0)
            released++;
    }
    return released;
}
