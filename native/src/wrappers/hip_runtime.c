#include "device/poller.h"
#include "device_hook.h"

#define VENDOR RK_PLATFORM_HIP
#define ROWS HIP

#include "runtime_hooks.h"

#include "module_hooks.h"
#include "per_thread_hooks.h"

/* How rocBLAS and its like launch. Sizes are in threads, and there are two events at the end. */
ENQUEUE(EXT_MODULE_LAUNCH, RK_SERIES_KERNEL,
        (void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
         size_t shared, void *stream, void **parameters, void **extra, void *start, void *stop,
         unsigned flags),
        (kernel, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra, start, stop, flags),
        stream, 0, 0)
