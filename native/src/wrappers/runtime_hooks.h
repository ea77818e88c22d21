/* The runtime: launches, memory, waiting. The same text for CUDA, MACA and HIP, whose signatures are
 * the same; no include guard, see device_hook.h. */

struct WRAPPER(DIM3) {
    uint32_t x, y, z;
};

/* cudaLaunchConfig_t and its twins, as far as the stream */
struct WRAPPER(LAUNCH_CONFIG) {
    struct WRAPPER(DIM3) grid, block;
    size_t shared_bytes;
    void *stream;
};

#define DIM struct WRAPPER(DIM3)
#define CONFIG struct WRAPPER(LAUNCH_CONFIG)

ENQUEUE(LAUNCH, RK_SERIES_KERNEL,
        (const void *kernel, DIM grid, DIM block, void **arguments, size_t shared, void *stream),
        (kernel, grid, block, arguments, shared, stream), stream, 0, 0)
ENQUEUE(LAUNCH_EX, RK_SERIES_KERNEL, (const CONFIG *config, const void *kernel, void **arguments),
        (config, kernel, arguments), STREAM_IN(config), 0, 0)
ENQUEUE(LAUNCH_COOPERATIVE, RK_SERIES_KERNEL,
        (const void *kernel, DIM grid, DIM block, void **arguments, size_t shared, void *stream),
        (kernel, grid, block, arguments, shared, stream), stream, 0, 0)
ENQUEUE(GRAPH_LAUNCH, RK_SERIES_GRAPH, (void *graph, void *stream), (graph, stream), stream, 0, 0)

ENQUEUE(MEMCPY_ASYNC, RK_SERIES_MEMORY,
        (void *to, const void *from, size_t bytes, int kind, void *stream),
        (to, from, bytes, kind, stream), stream, bytes, 0)
ENQUEUE(MEMSET_ASYNC, RK_SERIES_MEMORY, (void *to, int value, size_t bytes, void *stream),
        (to, value, bytes, stream), stream, bytes, 0)
ENQUEUE(MALLOC_ASYNC, RK_SERIES_MEMORY, (void **memory, size_t bytes, void *stream),
        (memory, bytes, stream), stream, bytes, 0)
ENQUEUE(MALLOC_FROM_POOL, RK_SERIES_MEMORY, (void **memory, size_t bytes, void *pool, void *stream),
        (memory, bytes, pool, stream), stream, bytes, 0)
ENQUEUE(FREE_ASYNC, RK_SERIES_MEMORY, (void *memory, void *stream), (memory, stream), stream, 0, 0)

BLOCK(MEMCPY, (void *to, const void *from, size_t bytes, int kind), (to, from, bytes, kind), bytes)
BLOCK(MEMSET, (void *to, int value, size_t bytes), (to, value, bytes), bytes)
BLOCK(MALLOC, (void **memory, size_t bytes), (memory, bytes), bytes)
BLOCK(FREE, (void *memory), (memory), 0)
/* The third argument is there with one vendor and not with another, who ignores it. */
BLOCK(MALLOC_HOST, (void **memory, size_t bytes, unsigned flags), (memory, bytes, flags), bytes)
BLOCK(HOST_ALLOC, (void **memory, size_t bytes, unsigned flags), (memory, bytes, flags), bytes)
BLOCK(FREE_HOST, (void *memory), (memory), 0)

BLOCK(STREAM_SYNC, (void *stream), (stream), 0)
BLOCK(EVENT_SYNC, (void *event), (event), 0)
BLOCK(DEVICE_SYNC, (void), (), 0)

WRAP(CAPTURE_BEGIN, (void *stream, int mode))
{
    FIND_ORIGINAL(CAPTURE_BEGIN);
    int result = original(stream, mode);
    if (result == 0)
        atomic_fetch_add(&rk_captures_open, 1);
    return result;
}

WRAP(CAPTURE_END, (void *stream, void **graph))
{
    FIND_ORIGINAL(CAPTURE_END);
    uint32_t open = atomic_load(&rk_captures_open);
    while (open != 0 && !atomic_compare_exchange_weak(&rk_captures_open, &open, open - 1))
        ;
    return original(stream, graph);
}

WRAP(DEVICE_RESET, (void))
{
    FIND_ORIGINAL(DEVICE_RESET);
    rk_poller_forget(VENDOR);
    return original();
}
