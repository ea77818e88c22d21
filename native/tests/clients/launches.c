/* Launches, and what each call gave: for programs whose runtime is not quite as usual. */
#define _GNU_SOURCE
#include "../sim/runtime_api.h"
#include "../sim/sim.h"
#include "client.h"
#include "scenes.h"

#ifndef LAUNCH
#define LAUNCH RT(LaunchKernel)
#endif

int LAUNCH(const void *kernel, struct rt_dim3 grid, struct rt_dim3 block, void **arguments,
           size_t shared, void *stream);

void launches(char **arguments)
{
    (void)arguments;
    static const struct rt_dim3 one = {1, 1, 1};
    static char kernel[8];
    void *stream = NULL;
    OK(RT(StreamCreate)(&stream));
    OK(sim_hold(stream));
    for (uint64_t ms = 2; ms <= 5; ms++) {
        uint64_t length_ns = ms * MS;
        void *launch_arguments[] = {&length_ns};
        int error = LAUNCH(kernel, one, one, launch_arguments, 0, stream);
        expect_number("error", error);
        if (error == 0)
            expect_work("launch", 0, 0, length_ns);
    }
    sim_let_go();
    OK(RT(StreamSynchronize)(stream));
    meet();
    OK(RT(DeviceReset)());
    tell_counts();
}
