/* Test double: CUDA's runtime and its libraries call the driver, which they load by name and whose
 * functions they fetch through cuGetProcAddress. */
#define _GNU_SOURCE
#include "below.h"
#include "sim.h"

#include <dlfcn.h>
#include <string.h>

typedef int (*get_address)(const char *symbol, void **function, int version, uint64_t flags,
                           int *status);
typedef int (*launch_kernel)(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                             unsigned by, unsigned bz, unsigned shared, void *stream,
                             void **parameters, void **extra);
typedef int (*launch_graph)(void *executable, void *stream);

static _Atomic(void *) launch_function, graph_function;

static void *fetch(const char *name)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = library != NULL ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    void *function = NULL;
    int status = 0;
    get_address get;
    memcpy(&get, &found, sizeof get);
    if (found == NULL || get(name, &function, 13000, 0, &status) != 0)
        return NULL;
    return function;
}

static void *known(_Atomic(void *) *place, const char *name)
{
    void *function = atomic_load_explicit(place, memory_order_acquire);
    if (function == NULL) {
        function = fetch(name);
        atomic_store_explicit(place, function, memory_order_release);
    }
    return function;
}

void sim_below_begin(void)
{
    known(&launch_function, "cuLaunchKernel");
}

int sim_below_launch(void *stream, void **arguments)
{
    void *function = known(&launch_function, "cuLaunchKernel");
    launch_kernel launch;
    memcpy(&launch, &function, sizeof launch);
    if (function == NULL)
        return SIM_NO_CONTEXT;
    return launch(&launch_function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

int sim_below_graph_launch(void *executable, void *stream)
{
    void *function = known(&graph_function, "cuGraphLaunch");
    launch_graph launch;
    memcpy(&launch, &function, sizeof launch);
    return function == NULL ? SIM_NO_CONTEXT : launch(executable, stream);
}
