/* The variants whose default stream is the thread's own, which programs compiled for that call. Where
 * exported: CUDA and HIP. See runtime_hooks.h. */

ENQUEUE(LAUNCH_PT, RK_SERIES_KERNEL,
        (const void *kernel, DIM grid, DIM block, void **arguments, size_t shared, void *stream),
        (kernel, grid, block, arguments, shared, stream), PER_THREAD(stream), 0, 0)
ENQUEUE(LAUNCH_EX_PT, RK_SERIES_KERNEL,
        (const CONFIG *config, const void *kernel, void **arguments), (config, kernel, arguments),
        PER_THREAD(STREAM_IN(config)), 0, 0)
ENQUEUE(LAUNCH_COOPERATIVE_PT, RK_SERIES_KERNEL,
        (const void *kernel, DIM grid, DIM block, void **arguments, size_t shared, void *stream),
        (kernel, grid, block, arguments, shared, stream), PER_THREAD(stream), 0, 0)
ENQUEUE(GRAPH_LAUNCH_PT, RK_SERIES_GRAPH, (void *graph, void *stream), (graph, stream),
        PER_THREAD(stream), 0, 0)
ENQUEUE(MEMCPY_ASYNC_PT, RK_SERIES_MEMORY,
        (void *to, const void *from, size_t bytes, int kind, void *stream),
        (to, from, bytes, kind, stream), PER_THREAD(stream), bytes, 0)
ENQUEUE(MEMSET_ASYNC_PT, RK_SERIES_MEMORY, (void *to, int value, size_t bytes, void *stream),
        (to, value, bytes, stream), PER_THREAD(stream), bytes, 0)
BLOCK(MEMCPY_PT, (void *to, const void *from, size_t bytes, int kind), (to, from, bytes, kind),
      bytes)
BLOCK(STREAM_SYNC_PT, (void *stream), (stream), 0)
