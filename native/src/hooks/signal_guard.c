/* A program that comes to real-time signals late may install a handler for the one that we picked. It must
 * get the signal as it would find it without us, and none of our requests: so this library stands before
 * sigaction and signal, and moves away. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>

#include "loader/loaded.h"
#include "requests/capture.h"
#include "requests/sigaction.h"

/* A sanitizer sets handlers of its own before it is ready for instrumented code. */
#define EXPORTED RK_PLAIN __attribute__((visibility("default")))

EXPORTED int sigaction(int number, const struct sigaction *action, struct sigaction *before)
{
    bool ours = action != NULL && rk_capture_avoid(number);
    int result = rk_real_sigaction(number, action, before);
    if (!ours || result != 0)
        return result;
    if (before != NULL) {
        memset(before, 0, sizeof *before);
        before->sa_handler = SIG_DFL;
    }
    int saved = errno;
    rk_capture_moves();
    errno = saved;
    return result;
}

/* As glibc's, but for interruptions that were asked for by siginterrupt, which is deprecated. */
EXPORTED sighandler_t signal(int number, sighandler_t handler)
{
    if (handler == SIG_ERR || !rk_capture_avoid(number))
        return rk_real_signal(number, handler);
    struct sigaction action, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaddset(&action.sa_mask, number);
    return sigaction(number, &action, &before) == 0 ? before.sa_handler : SIG_ERR;
}
