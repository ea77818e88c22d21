#include "device/poller.h"
#include "device_hook.h"

#define VENDOR RK_PLATFORM_CUDA
#define ROWS CUDA

#include "runtime_hooks.h"

#include "per_thread_hooks.h"

ENQUEUE(MALLOC_ASYNC_PT, RK_SERIES_MEMORY, (void **memory, size_t bytes, void *stream),
        (memory, bytes, stream), PER_THREAD(stream), bytes, 0)
ENQUEUE(FREE_ASYNC_PT, RK_SERIES_MEMORY, (void *memory, void *stream), (memory, stream),
        PER_THREAD(stream), 0, 0)
