/* The driver: what Triton and the runtimes of other languages call, and below the CUDA runtime, where
 * that is linked statically. */
#include "device/poller.h"
#include "device_hook.h"
#include "hooks/symbol_lookup.h"

#define VENDOR RK_PLATFORM_CUDA
#define ROWS CU

#include "module_hooks.h"

ENQUEUE(GRAPH_LAUNCH, RK_SERIES_GRAPH, (void *graph, void *stream), (graph, stream), stream, 0, 0)

ENQUEUE(MODULE_LAUNCH_PT, RK_SERIES_KERNEL,
        (void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
         unsigned shared, void *stream, void **parameters, void **extra),
        (kernel, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra), PER_THREAD(stream), 0,
        0)
ENQUEUE(MODULE_LAUNCH_EX_PT, RK_SERIES_KERNEL,
        (const struct WRAPPER(MODULE_CONFIG) * config, void *kernel, void **parameters,
         void **extra),
        (config, kernel, parameters, extra), PER_THREAD(STREAM_IN(config)), 0, 0)
ENQUEUE(MODULE_LAUNCH_COOPERATIVE_PT, RK_SERIES_KERNEL,
        (void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
         unsigned shared, void *stream, void **parameters),
        (kernel, gx, gy, gz, bx, by, bz, shared, stream, parameters), PER_THREAD(stream), 0, 0)
ENQUEUE(GRAPH_LAUNCH_PT, RK_SERIES_GRAPH, (void *graph, void *stream), (graph, stream),
        PER_THREAD(stream), 0, 0)

WRAP(CONTEXT_DESTROY, (void *context))
{
    FIND_ORIGINAL(CONTEXT_DESTROY);
    rk_poller_forget(VENDOR);
    return original(context);
}

WRAP(PRIMARY_RESET, (int device))
{
    FIND_ORIGINAL(PRIMARY_RESET);
    rk_poller_forget(VENDOR);
    return original(device);
}

/* The newer form has one argument more; passing it on to the older does no harm. */
#define GET_ADDRESS(row)                                                                           \
    WRAP(row, (const char *symbol, void **function, int version, uint64_t flags, void *status))    \
    {                                                                                              \
        FIND_ORIGINAL(row);                                                                        \
        int result = original(symbol, function, version, flags, status);                           \
        if (result == 0 && symbol != NULL && function != NULL && *function != NULL)                \
            *function = rk_driver_wrapper(symbol, *function, version, flags);                      \
        return result;                                                                             \
    }

GET_ADDRESS(GET_ADDRESS)
GET_ADDRESS(GET_ADDRESS_V2)
