/* Test double: Ascend's runtime. Unlike the others it has no error that waits to be fetched, and its
 * events give no negative time. */
#define _GNU_SOURCE
#include "acl_api.h"

#include <stdlib.h>
#include <string.h>

#include "sim.h"

#pragma GCC visibility push(default)

static int told(int error)
{
    return error == SIM_OK ? 0 : error == SIM_BAD_VALUE ? ACL_INVALID_PARAM : ACL_BUSY;
}

int aclInit(const char *config)
{
    (void)config;
    return told(sim_usable());
}

int aclFinalize(void)
{
    sim_device_reset();
    return 0;
}

int aclrtSetDevice(int32_t device)
{
    (void)device;
    sim_context_set(sim_primary_context());
    return told(sim_usable());
}

int aclrtGetDevice(int32_t *device)
{
    *device = 0;
    return sim_context_current() != NULL ? 0 : ACL_INVALID_PARAM;
}

int aclrtResetDevice(int32_t device)
{
    (void)device;
    sim_device_reset();
    return 0;
}

int aclrtGetCurrentContext(void **context)
{
    *context = sim_context_current();
    return *context != NULL ? 0 : ACL_INVALID_PARAM;
}

int aclrtSetCurrentContext(void *context)
{
    sim_context_set(context);
    return context != NULL ? 0 : ACL_INVALID_PARAM;
}

int aclrtCreateStream(void **stream)
{
    return told(sim_stream_create((struct sim_stream **)stream));
}

int aclrtDestroyStream(void *stream)
{
    return told(sim_stream_destroy(stream));
}

int aclrtSynchronizeStream(void *stream)
{
    return told(sim_stream_synchronize(stream));
}

int aclrtSynchronizeStreamWithTimeout(void *stream, int32_t limit_ms)
{
    uint64_t end_ns = sim_now_ns() + (uint64_t)limit_ms * 1000000u;
    while (limit_ms >= 0 && sim_stream_query(stream) == SIM_NOT_READY) {
        if (sim_now_ns() >= end_ns)
            return ACL_BUSY;
        sim_pause();
    }
    return aclrtSynchronizeStream(stream);
}

int aclrtSynchronizeDevice(void)
{
    return told(sim_device_synchronize());
}

int aclrtCreateEvent(void **event)
{
    if (sim_context_current() == NULL)
        return ACL_INVALID_PARAM;
    return told(sim_event_create((struct sim_event **)event));
}

int aclrtCreateEventWithFlag(void **event, uint32_t flag)
{
    (void)flag;
    return aclrtCreateEvent(event);
}

int aclrtDestroyEvent(void *event)
{
    return told(sim_event_destroy(event));
}

int aclrtRecordEvent(void *event, void *stream)
{
    return told(sim_event_record(event, stream));
}

int aclrtQueryEventStatus(void *event, int *status)
{
    int state = sim_event_query(event);
    *status = state == SIM_OK ? ACL_EVENT_COMPLETE : ACL_EVENT_NOT_READY;
    return state == SIM_NOT_READY ? 0 : told(state);
}

int aclrtSynchronizeEvent(void *event)
{
    return told(sim_event_synchronize(event));
}

int aclrtEventElapsedTime(float *milliseconds, void *from, void *to)
{
    int error = sim_event_elapsed(milliseconds, from, to);
    return error == SIM_OK && *milliseconds < 0 ? ACL_INVALID_PARAM : told(error);
}

int aclrtStreamWaitEvent(void *stream, void *event)
{
    return told(sim_stream_wait_event(stream, event));
}

int aclrtMalloc(void **memory, size_t bytes, int policy)
{
    (void)policy;
    *memory = malloc(bytes);
    return *memory != NULL ? told(sim_forbidden_in_capture()) : ACL_BUSY;
}

int aclrtFree(void *memory)
{
    free(memory);
    return 0;
}

int aclrtMallocHost(void **memory, size_t bytes)
{
    return aclrtMalloc(memory, bytes, 0);
}

int aclrtFreeHost(void *memory)
{
    return aclrtFree(memory);
}

int aclrtMemcpy(void *to, size_t room, const void *from, size_t bytes, int kind)
{
    (void)kind;
    if (bytes > room)
        return ACL_INVALID_PARAM;
    memmove(to, from, bytes);
    return 0;
}

int aclrtMemcpyAsync(void *to, size_t room, const void *from, size_t bytes, int kind, void *stream)
{
    (void)kind;
    return bytes <= room ? told(sim_copy(stream, to, from, bytes)) : ACL_INVALID_PARAM;
}

int aclrtMemset(void *to, size_t room, int32_t value, size_t bytes)
{
    if (bytes > room)
        return ACL_INVALID_PARAM;
    memset(to, value, bytes);
    return 0;
}

int aclrtMemsetAsync(void *to, size_t room, int32_t value, size_t bytes, void *stream)
{
    return bytes <= room ? told(sim_fill(stream, to, value, bytes)) : ACL_INVALID_PARAM;
}

int aclrtLaunchKernel(void *kernel, uint32_t blocks, const void *arguments, size_t bytes,
                      void *stream)
{
    (void)blocks;
    uint64_t length_ns = 0;
    if (kernel == NULL)
        return ACL_INVALID_PARAM;
    if (arguments != NULL && bytes >= sizeof length_ns)
        memcpy(&length_ns, arguments, sizeof length_ns);
    return told(sim_launch(stream, length_ns));
}

int aclmdlRICaptureBegin(void *stream, int mode)
{
    return told(sim_capture_begin(stream, mode));
}

int aclmdlRICaptureEnd(void *stream, void **model)
{
    return told(sim_capture_end(stream, (struct sim_graph **)model));
}

int aclmdlRICaptureGetInfo(void *stream, int *status, void **model)
{
    *model = NULL;
    return told(sim_capture_status(stream, status));
}

int aclmdlRICaptureThreadExchangeMode(int *mode)
{
    return told(sim_capture_exchange_mode(mode));
}

int aclmdlRIExecuteAsync(void *model, void *stream)
{
    return told(sim_graph_launch(model, stream));
}

int aclmdlRIDestroy(void *model)
{
    return told(sim_graph_destroy(model));
}
