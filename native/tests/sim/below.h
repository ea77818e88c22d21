/* Test double: how a library of the vendor's launches kernels itself. */
#ifndef SIM_BELOW_H
#define SIM_BELOW_H

#include <stdint.h>

/* Finds what is below, at the first use of a device. */
void sim_below_begin(void);
/* `arguments` as for the runtime's LaunchKernel. */
int sim_below_launch(void *stream, void **arguments);
int sim_below_graph_launch(void *executable, void *stream);

#endif
