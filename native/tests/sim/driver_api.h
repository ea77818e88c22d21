/* Test double: the part of CUDA's driver that is simulated, as published. */
#ifndef SIM_DRIVER_API_H
#define SIM_DRIVER_API_H

#include <stddef.h>
#include <stdint.h>

struct cu_launch_config {
    unsigned grid[3], block[3];
    unsigned shared_bytes;
    void *stream;
    void *attributes;
    unsigned attribute_count;
};

#define CU_LAUNCH_PARAMETERS                                                                       \
    (void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,   \
     unsigned shared, void *stream, void **parameters, void **extra)

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuDeviceGetCount(int *count);
int cuDeviceGet(int *device, int ordinal);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxReset_v2(int device);
int cuCtxGetCurrent(void **context);
int cuCtxSetCurrent(void *context);
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **context);
int cuCtxSynchronize(void);
int cuCtxDestroy_v2(void *context);
int cuStreamCreate(void **stream, unsigned flags);
int cuStreamDestroy_v2(void *stream);
int cuStreamSynchronize(void *stream);
int cuStreamIsCapturing(void *stream, int *status);
int cuStreamGetCtx(void *stream, void **context);
int cuThreadExchangeStreamCaptureMode(int *mode);
int cuEventCreate(void **event, unsigned flags);
int cuEventDestroy_v2(void *event);
int cuEventRecord(void *event, void *stream);
int cuEventQuery(void *event);
int cuEventSynchronize(void *event);
int cuEventElapsedTime(float *milliseconds, void *from, void *to);
int cuLaunchKernel CU_LAUNCH_PARAMETERS;
int cuLaunchKernel_ptsz CU_LAUNCH_PARAMETERS;
int cuLaunchKernelEx(const struct cu_launch_config *config, void *kernel, void **parameters,
                     void **extra);
int cuGraphLaunch(void *executable, void *stream);
int cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags);
int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                        int *status);

#endif
