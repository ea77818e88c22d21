#define _GNU_SOURCE
#include "own_symbols.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

#include "loaded.h"
#include "table/hook_rows.h"

static uintptr_t own_wrapper(enum rk_hook_id hook)
{
    static _Atomic(void *) own;
    void *handle = atomic_load(&own);
    if (handle == NULL) {
        Dl_info info;
        if (dladdr(&own, &info) != 0)
            handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        atomic_store(&own, handle);
    }
    return handle != NULL ? (uintptr_t)rk_dlsym(handle, rk_hook_rows[hook].symbol) : 0;
}

uintptr_t rk_look_in(void *handle, enum rk_hook_id hook)
{
    uintptr_t function =
        handle != NULL ? (uintptr_t)rk_dlsym(handle, rk_hook_rows[hook].symbol) : 0;
    return function == own_wrapper(hook) ? 0 : function;
}
