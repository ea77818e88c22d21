#define _GNU_SOURCE
#include "vendor.h"

#include <stddef.h>
#include <string.h>

#include "loader/loaded.h"

/* Public constants: a stream that does not wait for the legacy default stream; Ascend's events that
 * carry a time; thread capture mode "relaxed"; and so on. */
enum { STREAM_NON_BLOCKING = 1, ASCEND_EVENT_TIME_LINE = 8 };

enum { UNKNOWN, SEEKING, READY, ABSENT };

_Atomic uint32_t rk_captures_open;

static struct rk_device_api apis[RK_PLATFORM_COUNT];
static _Atomic int states[RK_PLATFORM_COUNT];

/* One row per function: where its address goes, its name, and whether there is no doing without. */
struct api_function {
    size_t at;
    const char *name;
    bool needed;
};

#define FUNCTION(field, symbol, needed_) {offsetof(struct rk_device_api, field), symbol, needed_}

static const struct api_function driver_functions[] = {
    FUNCTION(event_create, "cuEventCreate", true),
    FUNCTION(event_destroy, "cuEventDestroy_v2", true),
    FUNCTION(event_record, "cuEventRecord", true),
    FUNCTION(event_query, "cuEventQuery", true),
    FUNCTION(event_elapsed, "cuEventElapsedTime", true),
    FUNCTION(stream_create, "cuStreamCreate", true),
    FUNCTION(stream_destroy, "cuStreamDestroy_v2", false),
    FUNCTION(is_capturing, "cuStreamIsCapturing", false),
    FUNCTION(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", false),
    FUNCTION(context.driver.get, "cuCtxGetCurrent", true),
    FUNCTION(context.driver.set, "cuCtxSetCurrent", true),
    FUNCTION(context.driver.of_stream, "cuStreamGetCtx", false),
    FUNCTION(context.driver.push, "cuCtxPushCurrent_v2", true),
    FUNCTION(context.driver.pop, "cuCtxPopCurrent_v2", true),
    {0, NULL, false},
};

#define RUNTIME_FUNCTIONS(prefix)                                                                  \
    {                                                                                              \
        FUNCTION(event_create, prefix "EventCreateWithFlags", true),                               \
        FUNCTION(event_destroy, prefix "EventDestroy", true),                                      \
        FUNCTION(event_record, prefix "EventRecord", true),                                        \
        FUNCTION(event_query, prefix "EventQuery", true),                                          \
        FUNCTION(event_elapsed, prefix "EventElapsedTime", true),                                  \
        FUNCTION(stream_create, prefix "StreamCreateWithFlags", true),                             \
        FUNCTION(stream_destroy, prefix "StreamDestroy", false),                                   \
        FUNCTION(is_capturing, prefix "StreamIsCapturing", false),                                 \
        FUNCTION(exchange_capture_mode, prefix "ThreadExchangeStreamCaptureMode", false),          \
        FUNCTION(peek_error, prefix "PeekAtLastError", true),                                      \
        FUNCTION(take_error, prefix "GetLastError", true),                                         \
        FUNCTION(context.runtime.get, prefix "GetDevice", true),                                   \
        FUNCTION(context.runtime.set, prefix "SetDevice", true),                                   \
        {0, NULL, false},                                                                          \
    }

static const struct api_function cuda_functions[] = RUNTIME_FUNCTIONS("cuda");
static const struct api_function maca_functions[] = RUNTIME_FUNCTIONS("mc");
static const struct api_function hip_functions[] = RUNTIME_FUNCTIONS("hip");

static const struct api_function ascend_functions[] = {
    FUNCTION(event_create, "aclrtCreateEventWithFlag", true),
    FUNCTION(event_destroy, "aclrtDestroyEvent", true),
    FUNCTION(event_record, "aclrtRecordEvent", true),
    FUNCTION(event_elapsed, "aclrtEventElapsedTime", true),
    FUNCTION(stream_create, "aclrtCreateStream", true),
    FUNCTION(stream_destroy, "aclrtDestroyStream", false),
    FUNCTION(context.driver.get, "aclrtGetCurrentContext", true),
    FUNCTION(context.driver.set, "aclrtSetCurrentContext", true),
    {0, NULL, false},
};

static int (*ascend_query)(void *event, int *status);
static int (*ascend_capture_info)(void *stream, int *status, void **model);

static int ascend_event_query(void *event)
{
    int complete = 0;
    int error = ascend_query(event, &complete);
    return error != 0 ? error : complete ? RK_DEVICE_DONE : RK_DEVICE_NOT_READY;
}

static int ascend_is_capturing(void *stream, int *status)
{
    void *model = NULL;
    return ascend_capture_info(stream, status, &model);
}

static bool assemble(struct rk_device_api *api, const struct api_function *functions, void *library)
{
    memset(api, 0, sizeof *api);
    if (library == NULL)
        return false;
    for (const struct api_function *row = functions; row->name != NULL; row++) {
        void *function = rk_dlsym(library, row->name);
        if (function == NULL && row->needed)
            return false;
        memcpy((char *)api + row->at, &function, sizeof function);
    }
    return true;
}

static bool seek_runtime(struct rk_device_api *api, const struct api_function *functions,
                         const char *library)
{
    if (!assemble(api, functions, rk_loaded_library(library)))
        return false;
    api->kind = RK_RUNTIME_API;
    api->stream_flags = STREAM_NON_BLOCKING;
    return true;
}

/* Streams and events of the CUDA runtime are those of the driver (its documentation says so). */
static bool seek_driver(struct rk_device_api *api)
{
    if (!assemble(api, driver_functions, rk_loaded_library("libcuda")))
        return false;
    api->kind = RK_DRIVER_API;
    api->stream_flags = STREAM_NON_BLOCKING;
    return true;
}

static bool seek_ascend(struct rk_device_api *api)
{
    void *library = rk_loaded_library("libascendcl");
    if (!assemble(api, ascend_functions, library))
        return false;
    void *query = rk_dlsym(library, "aclrtQueryEventStatus");
    void *info = rk_dlsym(library, "aclmdlRICaptureGetInfo");
    memcpy(&ascend_query, &query, sizeof query);
    memcpy(&ascend_capture_info, &info, sizeof info);
    if (query == NULL)
        return false;
    api->event_query = ascend_event_query;
    api->is_capturing = info != NULL ? ascend_is_capturing : NULL;
    api->kind = RK_CONTEXT_API;
    api->event_flags = ASCEND_EVENT_TIME_LINE;
    return true;
}

static bool seek(enum rk_platform vendor)
{
    struct rk_device_api *api = &apis[vendor];
    switch (vendor) {
    case RK_PLATFORM_CUDA:
        return seek_driver(api) || seek_runtime(api, cuda_functions, "libcudart");
    case RK_PLATFORM_MACA:
        return seek_runtime(api, maca_functions, "libmcruntime");
    case RK_PLATFORM_HIP:
        return seek_runtime(api, hip_functions, "libamdhip64");
    case RK_PLATFORM_ASCEND:
        return seek_ascend(api);
    case RK_PLATFORM_CPU:
    case RK_PLATFORM_COUNT:
        break;
    }
    return false;
}

enum { TOO_MANY_FAULTS = 64 };

struct rk_device_api *rk_device_api(enum rk_platform vendor)
{
    int state = atomic_load_explicit(&states[vendor], memory_order_acquire);
    if (state == READY)
        return atomic_load_explicit(&apis[vendor].faults, memory_order_relaxed) < TOO_MANY_FAULTS
                   ? &apis[vendor]
                   : NULL;
    if (state != UNKNOWN || !atomic_compare_exchange_strong(&states[vendor], &state, SEEKING))
        return NULL;
    bool found = seek(vendor);
    atomic_store_explicit(&states[vendor], found ? READY : ABSENT, memory_order_release);
    return found ? &apis[vendor] : NULL;
}

struct rk_device_api *rk_device_known(enum rk_platform vendor)
{
    return atomic_load_explicit(&states[vendor], memory_order_acquire) == READY ? &apis[vendor]
                                                                                : NULL;
}

void rk_device_give_up(enum rk_platform vendor)
{
    atomic_store(&apis[vendor].faults, TOO_MANY_FAULTS);
}

void *rk_context_of(struct rk_device_api *api, void *stream)
{
    void *context = NULL;
    int device = -1;
    switch (api->kind) {
    case RK_DRIVER_API:
        /* 0, 1 and 2 are the default streams of the context that is current. */
        if (api->context.driver.of_stream != NULL && (uintptr_t)stream > 2 &&
            api->context.driver.of_stream(stream, &context) == 0)
            return context;
        return api->context.driver.get(&context) == 0 ? context : NULL;
    case RK_CONTEXT_API:
        return api->context.driver.get(&context) == 0 ? context : NULL;
    case RK_RUNTIME_API:
        return api->context.runtime.get(&device) == 0 && device >= 0
                   ? (void *)((uintptr_t)device + 1)
                   : NULL;
    case RK_NO_API:
        break;
    }
    return NULL;
}

bool rk_context_use(struct rk_device_api *api, void *context)
{
    return api->kind == RK_RUNTIME_API
               ? api->context.runtime.set((int)((uintptr_t)context - 1)) == 0
               : api->context.driver.set(context) == 0;
}

struct rk_saved_contexts rk_contexts_save(void)
{
    struct rk_saved_contexts before;
    for (int i = 0; i < RK_PLATFORM_COUNT; i++) {
        struct rk_device_api *api = rk_device_known((enum rk_platform)i);
        before.context[i] = api != NULL ? rk_context_of(api, NULL) : NULL;
        before.clean[i] = api != NULL && api->peek_error != NULL && api->peek_error() == 0;
    }
    return before;
}

void rk_contexts_restore(const struct rk_saved_contexts *before)
{
    for (int i = 0; i < RK_PLATFORM_COUNT; i++) {
        struct rk_device_api *api = rk_device_known((enum rk_platform)i);
        if (api == NULL)
            continue;
        if (before->context[i] != NULL || api->kind == RK_DRIVER_API)
            rk_context_use(api, before->context[i]);
        if (before->clean[i])
            api->take_error();
    }
}

bool rk_stream_captures(struct rk_device_api *api, void *stream)
{
    if (api->is_capturing == NULL)
        return atomic_load_explicit(&rk_captures_open, memory_order_relaxed) != 0;
    int status = 0;
    int error = api->is_capturing(stream, &status);
    /* The legacy stream answers with an error while another stream captures. */
    if (error != 0 && api->take_error != NULL)
        api->take_error();
    return error != 0 || status != 0;
}

void rk_vendor_after_fork(void)
{
    atomic_store(&rk_captures_open, 0);
    for (int vendor = 0; vendor < RK_PLATFORM_COUNT; vendor++) {
        int seeking = SEEKING;
        atomic_compare_exchange_strong(&states[vendor], &seeking, UNKNOWN);
    }
}
