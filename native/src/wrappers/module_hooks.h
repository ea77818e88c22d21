/* Launches by function handle: CUDA's driver, and the modules of the other runtimes. No include guard,
 * see device_hook.h. */

/* CUlaunchConfig and its twins, as far as the stream */
struct WRAPPER(MODULE_CONFIG) {
    unsigned grid[3], block[3];
    unsigned shared_bytes;
    void *stream;
};

ENQUEUE(MODULE_LAUNCH, RK_SERIES_KERNEL,
        (void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
         unsigned shared, void *stream, void **parameters, void **extra),
        (kernel, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra), stream, 0, 0)
ENQUEUE(MODULE_LAUNCH_EX, RK_SERIES_KERNEL,
        (const struct WRAPPER(MODULE_CONFIG) * config, void *kernel, void **parameters,
         void **extra),
        (config, kernel, parameters, extra), STREAM_IN(config), 0, 0)
ENQUEUE(MODULE_LAUNCH_COOPERATIVE, RK_SERIES_KERNEL,
        (void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
         unsigned shared, void *stream, void **parameters),
        (kernel, gx, gy, gz, bx, by, bz, shared, stream, parameters), stream, 0, 0)
