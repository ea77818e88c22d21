/* Test double: launches by function handle in HIP's and MACA's runtimes. */
#include "modules_api.h"
#include "sim.h"

#pragma GCC visibility push(default)

static int launch(void *kernel, void *stream, void **parameters)
{
    if (kernel == NULL)
        return SIM_BAD_KERNEL;
    return sim_launch(stream, parameters != NULL ? *(const uint64_t *)parameters[0] : 0);
}

#ifdef SIM_HIP
int hipModuleLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, void *stream,
                          void **parameters, void **extra)
{
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
    return launch(kernel, stream, parameters);
}

int hipExtModuleLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                             unsigned by, unsigned bz, size_t shared, void *stream,
                             void **parameters, void **extra, void *start, void *stop,
                             unsigned flags)
{
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
    (void)start, (void)stop, (void)flags;
    return launch(kernel, stream, parameters);
}
#else
int mcModuleLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                         unsigned by, unsigned bz, unsigned shared, void *stream, void **parameters,
                         void **extra)
{
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
    return launch(kernel, stream, parameters);
}
#endif
