/* Test double: the runtimes of HIP and MACA are the lowest layer that programs see. */
#include "below.h"
#include "sim.h"

#include <stddef.h>

void sim_below_begin(void)
{
}

int sim_below_launch(void *stream, void **arguments)
{
    return sim_launch(stream, arguments != NULL ? *(const uint64_t *)arguments[0] : 0);
}

int sim_below_graph_launch(void *executable, void *stream)
{
    return sim_graph_launch(executable, stream);
}
