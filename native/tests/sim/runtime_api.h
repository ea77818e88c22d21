/* Test double: the part of the runtime that is simulated, as its vendors publish it. */
#ifndef SIM_RUNTIME_API_H
#define SIM_RUNTIME_API_H

#include <stddef.h>
#include <stdint.h>

#include "names.h"

struct rt_dim3 {
    unsigned x, y, z;
};

struct rt_launch_config {
    struct rt_dim3 grid, block;
    size_t shared_bytes;
    void *stream;
    void *attributes;
    unsigned attribute_count;
};

/* The first argument of every simulated kernel points to its length, a uint64_t of ns. */
int RT(LaunchKernel)(const void *kernel, struct rt_dim3 grid, struct rt_dim3 block,
                     void **arguments, size_t shared, void *stream);
int RT(LaunchKernelExC)(const struct rt_launch_config *config, const void *kernel,
                        void **arguments);
int RT(LaunchCooperativeKernel)(const void *kernel, struct rt_dim3 grid, struct rt_dim3 block,
                                void **arguments, size_t shared, void *stream);
#ifdef RT_PER_THREAD
int RT_PER_THREAD(LaunchKernel)(const void *kernel, struct rt_dim3 grid, struct rt_dim3 block,
                                void **arguments, size_t shared, void *stream);
#endif
int RT(Malloc)(void **memory, size_t bytes);
int RT(Free)(void *memory);
int RT(MallocAsync)(void **memory, size_t bytes, void *stream);
int RT(FreeAsync)(void *memory, void *stream);
int RT(MallocHost)(void **memory, size_t bytes);
int RT_HOST_ALLOC(void **memory, size_t bytes, unsigned flags);
int RT_HOST_FREE(void *memory);
int RT(Memcpy)(void *to, const void *from, size_t bytes, int kind);
int RT(MemcpyAsync)(void *to, const void *from, size_t bytes, int kind, void *stream);
int RT(Memset)(void *to, int value, size_t bytes);
int RT(MemsetAsync)(void *to, int value, size_t bytes, void *stream);
int RT(StreamCreate)(void **stream);
int RT(StreamCreateWithFlags)(void **stream, unsigned flags);
int RT(StreamDestroy)(void *stream);
int RT(StreamSynchronize)(void *stream);
int RT(StreamQuery)(void *stream);
int RT(StreamWaitEvent)(void *stream, void *event, unsigned flags);
int RT(StreamBeginCapture)(void *stream, int mode);
int RT(StreamEndCapture)(void *stream, void **graph);
int RT(StreamIsCapturing)(void *stream, int *status);
int RT(ThreadExchangeStreamCaptureMode)(int *mode);
int RT(GraphInstantiate)(void **executable, void *graph GRAPH_TAIL);
int RT(GraphLaunch)(void *executable, void *stream);
int RT(GraphExecDestroy)(void *executable);
int RT(GraphDestroy)(void *graph);
int RT(EventCreate)(void **event);
int RT(EventCreateWithFlags)(void **event, unsigned flags);
int RT(EventDestroy)(void *event);
int RT(EventRecord)(void *event, void *stream);
int RT(EventQuery)(void *event);
int RT(EventSynchronize)(void *event);
int RT(EventElapsedTime)(float *milliseconds, void *from, void *to);
int RT(GetDeviceCount)(int *count);
int RT(GetDevice)(int *device);
int RT(SetDevice)(int device);
int RT(DeviceSynchronize)(void);
int RT(DeviceReset)(void);
int RT(GetLastError)(void);
int RT(PeekAtLastError)(void);
int RT(RuntimeGetVersion)(int *version);
int RT(DriverGetVersion)(int *version);

#endif
