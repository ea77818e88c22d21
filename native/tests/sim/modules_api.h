/* Test double: launches by function handle, of HIP's and MACA's runtimes, as published. */
#ifndef SIM_MODULES_API_H
#define SIM_MODULES_API_H

#include <stddef.h>

#ifdef SIM_HIP
int hipModuleLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, void *stream,
                          void **parameters, void **extra);
int hipExtModuleLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                             unsigned by, unsigned bz, size_t shared, void *stream,
                             void **parameters, void **extra, void *start, void *stop,
                             unsigned flags);
#else
int mcModuleLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                         unsigned by, unsigned bz, unsigned shared, void *stream, void **parameters,
                         void **extra);
#endif

#endif
