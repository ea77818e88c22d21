/* Test double: the runtime of CUDA, HIP or MACA (names.h). */
#define _GNU_SOURCE
#include "runtime_api.h"

#include <stdlib.h>
#include <string.h>

#include "below.h"
#include "sim.h"

#pragma GCC visibility push(default)

enum { VERSION = 13000 };

static _Thread_local int last_error;

static int noted(int error)
{
    if (error != SIM_OK)
        last_error = error;
    return error;
}

static void use_device(void)
{
    if (sim_context_current() != NULL)
        return;
    sim_below_begin();
    sim_context_set(sim_primary_context());
}

static int launch(const void *kernel, void **arguments, void *stream)
{
    use_device();
    return noted(kernel == NULL ? SIM_BAD_KERNEL : sim_below_launch(stream, arguments));
}

#ifndef SIM_WITHOUT_LAUNCH
int RT(LaunchKernel)(const void *kernel, struct rt_dim3 grid, struct rt_dim3 block,
                     void **arguments, size_t shared, void *stream)
{
    (void)grid, (void)block, (void)shared;
    return launch(kernel, arguments, stream);
}
#endif

#ifdef SIM_RENAMED_LAUNCH
int RT(LaunchKernelRenamed)(const void *kernel, struct rt_dim3 grid, struct rt_dim3 block,
                            void **arguments, size_t shared, void *stream);
int RT(LaunchKernelRenamed)(const void *kernel, struct rt_dim3 grid, struct rt_dim3 block,
                            void **arguments, size_t shared, void *stream)
{
    (void)grid, (void)block, (void)shared;
    return launch(kernel, arguments, stream);
}
#endif

#ifndef SIM_WITHOUT_LAUNCH_EX
int RT(LaunchKernelExC)(const struct rt_launch_config *config, const void *kernel, void **arguments)
{
    return launch(kernel, arguments, config->stream);
}
#endif

int RT(LaunchCooperativeKernel)(const void *kernel, struct rt_dim3 grid, struct rt_dim3 block,
                                void **arguments, size_t shared, void *stream)
{
    (void)grid, (void)block, (void)shared;
    return launch(kernel, arguments, stream);
}

#ifdef RT_PER_THREAD
int RT_PER_THREAD(LaunchKernel)(const void *kernel, struct rt_dim3 grid, struct rt_dim3 block,
                                void **arguments, size_t shared, void *stream)
{
    (void)grid, (void)block, (void)shared;
    return launch(kernel, arguments, stream != NULL ? stream : (void *)2);
}
#endif

static int allocate(void **memory, size_t bytes)
{
    use_device();
    int error = sim_usable();
    if (error == SIM_OK)
        error = sim_forbidden_in_capture();
    if (error == SIM_OK && (*memory = malloc(bytes)) == NULL)
        error = 2;
    return noted(error);
}

static int give_back(void *memory)
{
    int error = sim_forbidden_in_capture();
    if (error == SIM_OK)
        free(memory);
    return noted(error);
}

int RT(Malloc)(void **memory, size_t bytes)
{
    return allocate(memory, bytes);
}

int RT(Free)(void *memory)
{
    return give_back(memory);
}

int RT(MallocAsync)(void **memory, size_t bytes, void *stream)
{
    (void)stream;
    return allocate(memory, bytes);
}

int RT(FreeAsync)(void *memory, void *stream)
{
    int error = sim_stream_synchronize(stream);
    return error == SIM_OK ? give_back(memory) : noted(error);
}

int RT(MallocHost)(void **memory, size_t bytes)
{
    return allocate(memory, bytes);
}

int RT_HOST_ALLOC(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    return allocate(memory, bytes);
}

int RT_HOST_FREE(void *memory)
{
    return give_back(memory);
}

int RT(Memcpy)(void *to, const void *from, size_t bytes, int kind)
{
    (void)kind;
    use_device();
    int error = sim_stream_synchronize(NULL);
    if (error == SIM_OK)
        memmove(to, from, bytes);
    return noted(error);
}

int RT(MemcpyAsync)(void *to, const void *from, size_t bytes, int kind, void *stream)
{
    (void)kind;
    use_device();
    return noted(sim_copy(stream, to, from, bytes));
}

int RT(Memset)(void *to, int value, size_t bytes)
{
    use_device();
    int error = sim_stream_synchronize(NULL);
    if (error == SIM_OK)
        memset(to, value, bytes);
    return noted(error);
}

int RT(MemsetAsync)(void *to, int value, size_t bytes, void *stream)
{
    use_device();
    return noted(sim_fill(stream, to, value, bytes));
}

int RT(StreamCreate)(void **stream)
{
    use_device();
    return noted(sim_stream_create((struct sim_stream **)stream));
}

int RT(StreamCreateWithFlags)(void **stream, unsigned flags)
{
    (void)flags;
    return RT(StreamCreate)(stream);
}

int RT(StreamDestroy)(void *stream)
{
    return noted(sim_stream_destroy(stream));
}

int RT(StreamSynchronize)(void *stream)
{
    return noted(sim_stream_synchronize(stream));
}

int RT(StreamQuery)(void *stream)
{
    return noted(sim_stream_query(stream));
}

int RT(StreamWaitEvent)(void *stream, void *event, unsigned flags)
{
    (void)flags;
    return noted(sim_stream_wait_event(stream, event));
}

int RT(StreamBeginCapture)(void *stream, int mode)
{
    return noted(sim_capture_begin(stream, mode));
}

int RT(StreamEndCapture)(void *stream, void **graph)
{
    return noted(sim_capture_end(stream, (struct sim_graph **)graph));
}

int RT(StreamIsCapturing)(void *stream, int *status)
{
    return noted(sim_capture_status(stream, status));
}

int RT(ThreadExchangeStreamCaptureMode)(int *mode)
{
    return noted(sim_capture_exchange_mode(mode));
}

/* An executable graph is the graph itself here, and lives as long. */
int RT(GraphInstantiate)(void **executable, void *graph GRAPH_TAIL)
{
    GRAPH_TAIL_UNUSED;
    *executable = graph;
    return SIM_OK;
}

int RT(GraphLaunch)(void *executable, void *stream)
{
    use_device();
    return noted(sim_below_graph_launch(executable, stream));
}

int RT(GraphExecDestroy)(void *executable)
{
    (void)executable;
    return SIM_OK;
}

int RT(GraphDestroy)(void *graph)
{
    return noted(sim_graph_destroy(graph));
}

int RT(EventCreate)(void **event)
{
    use_device();
    return noted(sim_event_create((struct sim_event **)event));
}

int RT(EventCreateWithFlags)(void **event, unsigned flags)
{
    (void)flags;
    return RT(EventCreate)(event);
}

int RT(EventDestroy)(void *event)
{
    return noted(sim_event_destroy(event));
}

int RT(EventRecord)(void *event, void *stream)
{
    return noted(sim_event_record(event, stream));
}

int RT(EventQuery)(void *event)
{
    return noted(sim_event_query(event));
}

int RT(EventSynchronize)(void *event)
{
    return noted(sim_event_synchronize(event));
}

int RT(EventElapsedTime)(float *milliseconds, void *from, void *to)
{
    return noted(sim_event_elapsed(milliseconds, from, to));
}

int RT(GetDeviceCount)(int *count)
{
    *count = 1;
    return SIM_OK;
}

int RT(GetDevice)(int *device)
{
    *device = 0;
    return noted(sim_usable());
}

int RT(SetDevice)(int device)
{
    use_device();
    return noted(device == 0 ? sim_usable() : 101);
}

int RT(DeviceSynchronize)(void)
{
    return noted(sim_device_synchronize());
}

int RT(DeviceReset)(void)
{
    sim_device_reset();
    return SIM_OK;
}

int RT(GetLastError)(void)
{
    int error = last_error;
    last_error = SIM_OK;
    return error;
}

int RT(PeekAtLastError)(void)
{
    return last_error;
}

int RT(RuntimeGetVersion)(int *version)
{
    *version = VERSION;
    return SIM_OK;
}

int RT(DriverGetVersion)(int *version)
{
    *version = VERSION;
    return SIM_OK;
}
