/* Launches by CUDA's driver, found in each of the ways that programs find it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "../sim/driver_api.h"
#include "../sim/runtime_api.h"
#include "../sim/sim.h"
#include "client.h"
#include "scenes.h"

typedef int(*launch_function) CU_LAUNCH_PARAMETERS;
typedef int (*get_address_function)(const char *, void **, int, uint64_t, int *);

static char kernel[8];

static void launch_by(void *function, void *stream, uint64_t length_ns)
{
    launch_function launch;
    void *parameters[] = {&length_ns};
    memcpy(&launch, &function, sizeof launch);
    OK(launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    expect_work("launch", 0, 0, length_ns);
}

void drivers(char **arguments)
{
    (void)arguments;
    void *stream = NULL, *context = NULL, *function = NULL;
    int status = 0;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, 1));
    OK(sim_hold(stream));
    uint64_t length_ns = 2 * MS;
    void *parameters[] = {&length_ns};
    /* linked with it */
    OK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    expect_work("launch", 0, 0, length_ns);
    struct cu_launch_config config = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .stream = stream};
    OK(cuLaunchKernelEx(&config, kernel, parameters, NULL));
    expect_work("launch_ex", 0, 0, length_ns);
    /* through the driver's own look-up, itself linked */
    OK(cuGetProcAddress_v2("cuLaunchKernel", &function, 13000, 0, &status));
    launch_by(function, stream, 3 * MS);
    /* by dlsym on a handle, as Triton and ctypes do */
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL)
        exit(75);
    launch_by(dlsym(library, "cuLaunchKernel"), stream, 4 * MS);
    /* by the look-up that dlsym found */
    void *found = dlsym(library, "cuGetProcAddress_v2");
    get_address_function get_address;
    memcpy(&get_address, &found, sizeof get_address);
    OK(get_address("cuLaunchKernel", &function, 13000, 0, &status));
    launch_by(function, stream, 5 * MS);
    /* and where every thread has a default stream of its own */
    OK(get_address("cuLaunchKernel", &function, 13000, 2, &status));
    launch_by(function, stream, 6 * MS);
    launch_by(dlsym(RTLD_DEFAULT, "cuLaunchKernel"), stream, 7 * MS);
    expect_number("unknown", dlsym(library, "cuNoSuchFunction") == NULL);
    sim_let_go();
    OK(cuStreamSynchronize(stream));
    meet();
    OK(cuDevicePrimaryCtxReset_v2(0));
    tell_counts();
}
