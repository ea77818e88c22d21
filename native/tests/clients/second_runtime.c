/* A program with two CUDA runtimes, each loaded for itself alone: `second_runtime LIBRARY LIBRARY`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "../sim/sim.h"
#include "client.h"

struct dim3 {
    unsigned x, y, z;
};

typedef int (*launch_kernel)(const void *, struct dim3, struct dim3, void **, size_t, void *);

static void both(char **libraries)
{
    static char kernel[8];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2; i++) {
            struct dim3 one = {1, 1, 1};
            uint64_t length_ns = MS;
            void *arguments[] = {&length_ns};
            void *library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
            if (library == NULL)
                exit(75);
            void *found = dlsym(library, "cudaLaunchKernel");
            launch_kernel launch;
            memcpy(&launch, &found, sizeof launch);
            OK(launch(kernel, one, one, arguments, 0, NULL));
        }
    }
    OK(sim_device_synchronize());
    meet();
    tell_counts();
}

const struct scene scenes[] = {{"both", both}, {NULL, NULL}};
