/* A process that forks when it has used its device, as loaders of data are forked. */
#define _GNU_SOURCE
#include <sys/wait.h>
#include <unistd.h>

#include "../sim/runtime_api.h"
#include "../sim/sim.h"
#include "client.h"
#include "scenes.h"

#ifndef LAUNCH
#define LAUNCH RT(LaunchKernel)
#endif

int LAUNCH(const void *kernel, struct rt_dim3 grid, struct rt_dim3 block, void **arguments,
           size_t shared, void *stream);

static char kernel[8];

static int launch(void *stream, uint64_t length_ns)
{
    static const struct rt_dim3 one = {1, 1, 1};
    void *arguments[] = {&length_ns};
    return LAUNCH(kernel, one, one, arguments, 0, stream);
}

/* The device cannot be used in the child, which tries and goes on. */
static void be_child(void *stream)
{
    for (int i = 0; i < 300; i++)
        if (launch(stream, 0) != SIM_AFTER_FORK)
            _exit(10);
    void *memory = malloc(100);
    free(memory);
    exit(0);
}

void forks(char **arguments)
{
    (void)arguments;
    void *stream = NULL;
    int status = -1;
    OK(RT(StreamCreate)(&stream));
    OK(launch(stream, 2 * MS));
    OK(RT(StreamSynchronize)(stream));
    /* Until the recorder has seen its end. A thread that only starts now, the recorder's own, may hold a
     * lock of the sanitizer's at the fork, which the child would wait for. */
    meet();
    OK(launch(stream, 20 * MS));
    OK(launch(stream, 20 * MS)); /* in flight while the process forks */
    pid_t child = fork();
    if (child == 0)
        be_child(stream);
    waitpid(child, &status, 0);
    OK(launch(stream, 20 * MS));
    OK(launch(stream, 3 * MS)); /* behind it */
    OK(RT(StreamSynchronize)(stream));
    expect_number("child", child);
    expect_number("child_status", status);
    meet();
    OK(RT(DeviceReset)());
    tell_counts();
}
