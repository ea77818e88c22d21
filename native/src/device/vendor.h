/* The few functions of a vendor's runtime that timing needs, found at run time. */
#ifndef RELKIT_DEVICE_VENDOR_H
#define RELKIT_DEVICE_VENDOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "relkit/state_layout.h"

enum { RK_DEVICE_DONE = 0, RK_DEVICE_NOT_READY = 600 };

/* What must never be seen by the program: an error that a call of ours left in the runtime's
 * per-thread "last error". The CUDA driver has no such thing, so its functions are preferred; where
 * only a runtime is to be had, `peek_error` must say that nothing is pending before we call at all,
 * and `take_error` clears what a failing call of ours has left. */
struct rk_device_api {
    int (*event_create)(void **event, unsigned flags);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event); /* RK_DEVICE_DONE, RK_DEVICE_NOT_READY, or an error */
    int (*event_elapsed)(float *milliseconds, void *from, void *to);
    int (*stream_create)(void **stream, unsigned flags);
    /* May be NULL: */
    int (*stream_destroy)(void *stream);
    int (*is_capturing)(void *stream, int *status);
    int (*exchange_capture_mode)(int *mode);
    int (*peek_error)(void);
    int (*take_error)(void);
    unsigned event_flags, stream_flags;
    enum { RK_NO_API, RK_DRIVER_API, RK_RUNTIME_API, RK_CONTEXT_API } kind;
    union {
        struct {
            int (*get)(void **context);
            int (*set)(void *context);
            int (*of_stream)(void *stream, void **context); /* may be NULL */
            int (*push)(void *context);
            int (*pop)(void **context);
        } driver;
        struct {
            int (*get)(int *device);
            int (*set)(int device);
        } runtime;
    } context;
    _Atomic uint32_t faults; /* calls in a row that failed */
};

/* NULL where the vendor's runtime is not loaded or lacks what is needed. */
struct rk_device_api *rk_device_api(enum rk_platform vendor);

/* The same, without looking for it. */
struct rk_device_api *rk_device_known(enum rk_platform vendor);

/* No more timing on this vendor's devices. */
void rk_device_give_up(enum rk_platform vendor);

/* The context (driver) or device number + 1 (runtime) that work on `stream` belongs to; NULL where
 * there is none. */
void *rk_context_of(struct rk_device_api *api, void *stream);

/* Makes this thread work there. */
bool rk_context_use(struct rk_device_api *api, void *context);

/* What a thread of the program has current, and whether an error waits for it, around work that we
 * do on it. */
struct rk_saved_contexts {
    void *context[RK_PLATFORM_COUNT];
    bool clean[RK_PLATFORM_COUNT];
};

struct rk_saved_contexts rk_contexts_save(void);
void rk_contexts_restore(const struct rk_saved_contexts *before);

/* Stream is being captured into a graph (or that cannot be told). */
bool rk_stream_captures(struct rk_device_api *api, void *stream);

/* cudaStreamBeginCapture and its end, for runtimes in which a stream cannot be asked. */
extern _Atomic uint32_t rk_captures_open;

void rk_vendor_after_fork(void);

#endif
