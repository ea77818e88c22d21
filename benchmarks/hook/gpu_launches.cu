/* Launches of an empty kernel, 200 at a time, and what the host pays for one: see gpu_launches.py. */
#include <cuda_runtime.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CHUNKS = 400, AT_ONCE = 200, WARM_UP = 2000 };

static double launch_ns[CHUNKS], synced_ns[CHUNKS];

__global__ void nothing(void) {}

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static int ascending(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return a < b ? -1 : a > b;
}

static double chunk(bool sync_each)
{
    double began = now_ns();
    for (int i = 0; i < AT_ONCE; i++) {
        nothing<<<1, 1>>>();
        if (sync_each)
            cudaDeviceSynchronize();
    }
    double took = (now_ns() - began) / AT_ONCE;
    cudaDeviceSynchronize();
    return took;
}

int main(void)
{
    for (int i = 0; i < WARM_UP; i++)
        nothing<<<1, 1>>>();
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 1;
    for (int i = 0; i < CHUNKS; i++)
        launch_ns[i] = chunk(false);
    for (int i = 0; i < CHUNKS; i++)
        synced_ns[i] = chunk(true);
    qsort(launch_ns, CHUNKS, sizeof *launch_ns, ascending);
    qsort(synced_ns, CHUNKS, sizeof *synced_ns, ascending);
    printf("%.0f %.0f %.0f\n", launch_ns[CHUNKS / 20], launch_ns[CHUNKS / 2],
           synced_ns[CHUNKS / 2]);
    return 0;
}
