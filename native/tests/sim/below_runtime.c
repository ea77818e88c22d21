/* Test double: libraries of HIP and MACA launch through the vendor's runtime. */
#include "below.h"
#include "runtime_api.h"

void sim_below_begin(void)
{
}

int sim_below_launch(void *stream, void **arguments)
{
    struct rt_dim3 one = {1, 1, 1};
    return RT(LaunchKernel)(&one, one, one, arguments, 0, stream);
}

int sim_below_graph_launch(void *executable, void *stream)
{
    return RT(GraphLaunch)(executable, stream);
}
