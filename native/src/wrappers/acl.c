/* Ascend's runtime. Operators of CANN's own libraries (aclnn...) reach the device below this interface
 * and are not seen one by one. */
#include "device/poller.h"
#include "device_hook.h"

#define VENDOR RK_PLATFORM_ASCEND
#define ROWS ACL

ENQUEUE(LAUNCH, RK_SERIES_KERNEL,
        (void *kernel, uint32_t blocks, const void *arguments, size_t bytes, void *stream),
        (kernel, blocks, arguments, bytes, stream), stream, 0, 0)
ENQUEUE(LAUNCH_CONFIG, RK_SERIES_KERNEL,
        (void *kernel, uint32_t blocks, void *stream, void *config, void *arguments,
         void *reserved),
        (kernel, blocks, stream, config, arguments, reserved), stream, 0, 0)
ENQUEUE(LAUNCH_V2, RK_SERIES_KERNEL,
        (void *kernel, uint32_t blocks, const void *arguments, size_t bytes, void *config,
         void *stream),
        (kernel, blocks, arguments, bytes, config, stream), stream, 0, 0)
ENQUEUE(LAUNCH_HOST_ARGS, RK_SERIES_KERNEL,
        (void *kernel, uint32_t blocks, void *stream, void *config, void *arguments, size_t bytes,
         void *places, size_t place_count),
        (kernel, blocks, stream, config, arguments, bytes, places, place_count), stream, 0, 0)
ENQUEUE(GRAPH_LAUNCH, RK_SERIES_GRAPH, (void *graph, void *stream), (graph, stream), stream, 0, 0)

ENQUEUE(MEMCPY_ASYNC, RK_SERIES_MEMORY,
        (void *to, size_t room, const void *from, size_t bytes, int kind, void *stream),
        (to, room, from, bytes, kind, stream), stream, bytes, 0)
ENQUEUE(MEMSET_ASYNC, RK_SERIES_MEMORY,
        (void *to, size_t room, int32_t value, size_t bytes, void *stream),
        (to, room, value, bytes, stream), stream, bytes, 0)

BLOCK(MEMCPY, (void *to, size_t room, const void *from, size_t bytes, int kind),
      (to, room, from, bytes, kind), bytes)
BLOCK(MEMSET, (void *to, size_t room, int32_t value, size_t bytes), (to, room, value, bytes), bytes)
BLOCK(MALLOC, (void **memory, size_t bytes, int policy), (memory, bytes, policy), bytes)
BLOCK(FREE, (void *memory), (memory), 0)
BLOCK(MALLOC_HOST, (void **memory, size_t bytes), (memory, bytes), bytes)
BLOCK(FREE_HOST, (void *memory), (memory), 0)

BLOCK(STREAM_SYNC, (void *stream), (stream), 0)
BLOCK(STREAM_SYNC_LIMIT, (void *stream, int32_t limit_ms), (stream, limit_ms), 0)
BLOCK(EVENT_SYNC, (void *event), (event), 0)
BLOCK(DEVICE_SYNC, (void), (), 0)

WRAP(DEVICE_RESET, (int32_t device))
{
    FIND_ORIGINAL(DEVICE_RESET);
    rk_poller_forget(VENDOR);
    return original(device);
}

WRAP(FINALIZE, (void))
{
    FIND_ORIGINAL(FINALIZE);
    rk_poller_forget(VENDOR);
    return original();
}
