/* Test double: CUDA's driver. One device with one context. */
#define _GNU_SOURCE
#include "driver_api.h"

#include <string.h>

#include "sim.h"

#pragma GCC visibility push(default)

enum { NOT_FOUND = 500, PER_THREAD = 2, VERSION = 13000 };

int cuInit(unsigned flags)
{
    (void)flags;
    return sim_usable();
}

int cuDriverGetVersion(int *version)
{
    *version = VERSION;
    return SIM_OK;
}

int cuDeviceGetCount(int *count)
{
    *count = 1;
    return SIM_OK;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal == 0 ? SIM_OK : 101;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = sim_primary_context();
    return device == 0 ? sim_usable() : 101;
}

int cuDevicePrimaryCtxReset_v2(int device)
{
    sim_device_reset();
    return device == 0 ? SIM_OK : 101;
}

int cuCtxGetCurrent(void **context)
{
    *context = sim_context_current();
    return sim_usable();
}

int cuCtxSetCurrent(void *context)
{
    sim_context_set(context);
    return sim_usable();
}

int cuCtxPushCurrent_v2(void *context)
{
    return sim_context_push(context);
}

int cuCtxPopCurrent_v2(void **context)
{
    return sim_context_pop(context);
}

int cuCtxSynchronize(void)
{
    return sim_device_synchronize();
}

int cuCtxDestroy_v2(void *context)
{
    (void)context;
    sim_device_reset();
    return SIM_OK;
}

int cuStreamCreate(void **stream, unsigned flags)
{
    (void)flags;
    if (sim_context_current() == NULL)
        return SIM_NO_CONTEXT;
    return sim_stream_create((struct sim_stream **)stream);
}

int cuStreamDestroy_v2(void *stream)
{
    return sim_stream_destroy(stream);
}

int cuStreamSynchronize(void *stream)
{
    return sim_stream_synchronize(stream);
}

int cuStreamIsCapturing(void *stream, int *status)
{
    return sim_capture_status(stream, status);
}

int cuStreamGetCtx(void *stream, void **context)
{
    *context = sim_primary_context();
    return sim_stream_of(stream) != NULL ? SIM_OK : SIM_BAD_HANDLE;
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
    return sim_capture_exchange_mode(mode);
}

int cuEventCreate(void **event, unsigned flags)
{
    (void)flags;
    if (sim_context_current() == NULL)
        return SIM_NO_CONTEXT;
    return sim_event_create((struct sim_event **)event);
}

int cuEventDestroy_v2(void *event)
{
    return sim_event_destroy(event);
}

int cuEventRecord(void *event, void *stream)
{
    return sim_event_record(event, stream);
}

int cuEventQuery(void *event)
{
    return sim_event_query(event);
}

int cuEventSynchronize(void *event)
{
    return sim_event_synchronize(event);
}

int cuEventElapsedTime(float *milliseconds, void *from, void *to)
{
    return sim_event_elapsed(milliseconds, from, to);
}

static int launch(void *kernel, void *stream, void **parameters)
{
    if (sim_context_current() == NULL)
        return SIM_NO_CONTEXT;
    if (kernel == NULL)
        return SIM_BAD_HANDLE;
    return sim_launch(stream, parameters != NULL ? *(const uint64_t *)parameters[0] : 0);
}

int cuLaunchKernel CU_LAUNCH_PARAMETERS
{
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
    return launch(kernel, stream, parameters);
}

int cuLaunchKernel_ptsz CU_LAUNCH_PARAMETERS
{
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
    return launch(kernel, stream != NULL ? stream : (void *)2, parameters);
}

int cuLaunchKernelEx(const struct cu_launch_config *config, void *kernel, void **parameters,
                     void **extra)
{
    (void)extra;
    return launch(kernel, config->stream, parameters);
}

int cuGraphLaunch(void *executable, void *stream)
{
    return sim_graph_launch(executable, stream);
}

/* Names as cuGetProcAddress knows them: without the version of the function. */
static const struct {
    const char *name;
    void *function, *per_thread;
} functions[] = {
#define ENTRY(name) {#name, (void *)(uintptr_t)name, (void *)(uintptr_t)name}
    ENTRY(cuInit),
    ENTRY(cuDriverGetVersion),
    ENTRY(cuCtxGetCurrent),
    ENTRY(cuCtxSetCurrent),
    ENTRY(cuStreamCreate),
    ENTRY(cuStreamSynchronize),
    ENTRY(cuEventRecord),
    ENTRY(cuLaunchKernelEx),
    ENTRY(cuGraphLaunch),
    {"cuLaunchKernel", (void *)(uintptr_t)cuLaunchKernel, (void *)(uintptr_t)cuLaunchKernel_ptsz},
    {"cuGetProcAddress", (void *)(uintptr_t)cuGetProcAddress_v2,
     (void *)(uintptr_t)cuGetProcAddress_v2},
};

int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                        int *status)
{
    (void)version;
    *function = NULL;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, symbol) == 0)
            *function = flags & PER_THREAD ? functions[i].per_thread : functions[i].function;
    if (status != NULL)
        *status = *function == NULL;
    return *function != NULL ? SIM_OK : NOT_FOUND;
}

int cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
