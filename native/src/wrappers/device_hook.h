/* What the wrappers of device libraries are made of. A file of wrappers is written once for all
 * vendors that share the signatures; it is included with these defined:
 *
 *     VENDOR          e.g. RK_PLATFORM_CUDA
 *     ROWS            the prefix of its rows in the table, e.g. CUDA
 */
#ifndef RELKIT_DEVICE_HOOK_H
#define RELKIT_DEVICE_HOOK_H

#include "hook.h"
#include "hooks/launch.h"
#include "loader/platforms.h"

#define RK_JOIN_(a, b) a##b
#define RK_JOIN(a, b) RK_JOIN_(a, b)
#define RK_ROW_(rows, row) rows##_##row
#define RK_ROW(rows, row) RK_ROW_(rows, row)

#define DEVICE_ORIGINAL_(id, type) ORIGINAL(id, type)
#define DEVICE_ORIGINAL(id, type) DEVICE_ORIGINAL_(id, type)

#define WRAPPER(row) RK_JOIN(hook_, RK_ROW(ROWS, row))
#define TYPE(row) RK_JOIN(WRAPPER(row), _type)
#define HOOK_ID(row) RK_JOIN(RK_HOOK_, RK_ROW(ROWS, row))

/* A wrapper that starts with its original at hand. */
#define WRAP(row, parameters)                                                                      \
    typedef int(*TYPE(row)) parameters;                                                            \
    HOOK(RK_ROW(ROWS, row), int, WRAPPER(row), parameters)
#define FIND_ORIGINAL(row) TYPE(row) original = DEVICE_ORIGINAL(RK_ROW(ROWS, row), TYPE(row))

/* Work that is put on a stream: counted, and one in n timed on the device. */
#define ENQUEUE(row, series, parameters, arguments, stream_, size_, flops_)                        \
    WRAP(row, parameters)                                                                          \
    {                                                                                              \
        FIND_ORIGINAL(row);                                                                        \
        if (!rk_platform_wanted(VENDOR))                                                           \
            return original arguments;                                                             \
        struct rk_launch launch;                                                                   \
        bool sampled = rk_pass_enter(series);                                                      \
        if (__builtin_expect(sampled, 0))                                                          \
            rk_launch_start(&launch, series, VENDOR, stream_);                                     \
        int result = original arguments;                                                           \
        if (__builtin_expect(sampled, 0))                                                          \
            rk_launch_end(&launch, HOOK_ID(row), result == 0, size_, flops_);                      \
        rk_pass_leave();                                                                           \
        return result;                                                                             \
    }

/* A call that comes back when its work is done: timed by the host. */
#define BLOCK(row, parameters, arguments, size_)                                                   \
    WRAP(row, parameters)                                                                          \
    {                                                                                              \
        FIND_ORIGINAL(row);                                                                        \
        if (!rk_platform_wanted(VENDOR))                                                           \
            return original arguments;                                                             \
        RK_SCOPE(scope);                                                                           \
        if (scope.slot != NULL) {                                                                  \
            scope.op.hook = HOOK_ID(row);                                                          \
            scope.op.size_bytes = size_;                                                           \
            rk_begin(&scope);                                                                      \
        }                                                                                          \
        int result = original arguments;                                                           \
        scope.returned = result == 0;                                                              \
        return result;                                                                             \
    }

#define STREAM_IN(config) ((config) != NULL ? (config)->stream : NULL)

/* The default stream of functions whose name says that it is the thread's own. */
#define PER_THREAD(stream) ((stream) == NULL ? (void *)2 : (stream))

#endif
