/* One sampled launch, from before the real call to after it. */
#ifndef RELKIT_HOOKS_LAUNCH_H
#define RELKIT_HOOKS_LAUNCH_H

#include "device/timing.h"
#include "table/table.h"

struct rk_launch {
    struct rk_timing timing;
    uint32_t weight;
};

void rk_launch_start(struct rk_launch *launch, enum rk_series series, enum rk_platform vendor,
                     void *stream);

/* `good`: the real call succeeded. Counts the launch in any case. */
void rk_launch_end(struct rk_launch *launch, enum rk_hook_id hook, bool good, uint64_t size_bytes,
                   uint64_t flops);

#endif
