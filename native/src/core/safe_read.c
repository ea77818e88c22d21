#define _GNU_SOURCE
#include "safe_read.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

bool rk_safe_read(void *to, const void *from, size_t size)
{
    /* The kernel answers EFAULT for a bad source. A pipe works in every sandbox, which
     * process_vm_readv does not. */
    int saved = errno;
    int ends[2];
    bool done = false;
    if (size <= 4096 && pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0) {
        done =
            write(ends[1], from, size) == (ssize_t)size && read(ends[0], to, size) == (ssize_t)size;
        close(ends[0]);
        close(ends[1]);
    }
    errno = saved;
    return done;
}
