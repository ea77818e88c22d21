/* void gloo::NAME(NAMEOptions &): one pointer in, nothing out, an exception where it fails. */
#include "hook.h"
#include "hooks/gloo_options.h"

typedef void (*collective)(void *options);

#define COLLECTIVE(id, function)                                                                   \
    HOOK(id, void, function, (void *options))                                                      \
    {                                                                                              \
        collective original = ORIGINAL(id, collective);                                            \
        RK_SCOPE(scope);                                                                           \
        if (scope.slot != NULL) {                                                                  \
            rk_gloo_describe(&scope, RK_HOOK_##id, options);                                       \
            rk_begin(&scope);                                                                      \
        }                                                                                          \
        original(options);                                                                         \
        scope.returned = true;                                                                     \
    }

COLLECTIVE(GLOO_ALLREDUCE, hook_allreduce)
COLLECTIVE(GLOO_ALLGATHER, hook_allgather)
COLLECTIVE(GLOO_ALLGATHERV, hook_allgatherv)
COLLECTIVE(GLOO_BROADCAST, hook_broadcast)
COLLECTIVE(GLOO_REDUCE, hook_reduce)
COLLECTIVE(GLOO_GATHER, hook_gather)
COLLECTIVE(GLOO_SCATTER, hook_scatter)
COLLECTIVE(GLOO_ALLTOALL, hook_alltoall)
COLLECTIVE(GLOO_ALLTOALLV, hook_alltoallv)
COLLECTIVE(GLOO_BARRIER, hook_barrier)
