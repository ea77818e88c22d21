#include "launch.h"

void rk_launch_start(struct rk_launch *launch, enum rk_series series, enum rk_platform vendor,
                     void *stream)
{
    launch->weight = series == RK_SERIES_GRAPH
                         ? 1
                         : atomic_load_explicit(&rk_sample_every, memory_order_relaxed);
    rk_timing_start(&launch->timing, vendor, stream);
}

void rk_launch_end(struct rk_launch *launch, enum rk_hook_id hook, bool good, uint64_t size_bytes,
                   uint64_t flops)
{
    struct rk_timing *timing = &launch->timing;
    bool timed = timing->result == RK_TIMING_ON && rk_timing_end(timing);
    if (timed && good) {
        struct rk_op op = {.start_ns = timing->enqueue_ns,
                           .enqueue_ns = timing->enqueue_ns,
                           .seq = -1,
                           .size_bytes = size_bytes,
                           .tid = rk_thread_id(),
                           .hook = (uint16_t)hook,
                           .communicator = -1,
                           .flags = RK_OP_DEVICE | RK_OP_QUEUED,
                           .peer = -1,
                           .flops = flops};
        good = rk_timing_post(timing, &op, launch->weight);
    }
    if (timed)
        rk_timing_close(timing);
    rk_pass_count(timed && good);
}
