#define _GNU_SOURCE
#include "sigaction.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>

#include "loader/loaded.h"

typedef int (*sigaction_function)(int, const struct sigaction *, struct sigaction *);

typedef void (*handler_function)(int);
typedef handler_function (*signal_function)(int, handler_function);

static RK_PLAIN uintptr_t next(_Atomic uintptr_t *known, const char *name)
{
    uintptr_t function = atomic_load_explicit(known, memory_order_acquire);
    if (function == 0) {
        function = (uintptr_t)rk_dlsym(RTLD_NEXT, name);
        atomic_store_explicit(known, function, memory_order_release);
    }
    return function;
}

RK_PLAIN void (*rk_real_signal(int number, void (*handler)(int)))(int)
{
    static _Atomic uintptr_t known;
    signal_function function = (signal_function)next(&known, "signal");
    return function != NULL ? function(number, handler) : SIG_ERR;
}

RK_PLAIN int rk_real_sigaction(int number, const struct sigaction *action, struct sigaction *before)
{
    static _Atomic uintptr_t known;
    uintptr_t function = next(&known, "sigaction");
    if (function == 0) {
        errno = ENOSYS;
        return -1;
    }
    return ((sigaction_function)function)(number, action, before);
}
