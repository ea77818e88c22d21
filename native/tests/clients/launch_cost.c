/* What one call costs the calling thread: kernels and collectives that take no time, on a stream where
 * nothing is queued. `cost launches|collectives COUNT`, ns a call on standard output, for each line on
 * standard input. */
#define _GNU_SOURCE
#include "../sim/ccl_api.h"
#include "../sim/runtime_api.h"
#include "../sim/sim.h"
#include "client.h"

static char kernel[8];

static void serve(double (*measure)(void *, void *, long), void *comm, long count)
{
    void *stream = NULL;
    char line[16];
    OK(RT(StreamCreate)(&stream));
    measure(comm, stream, count);
    while (fgets(line, sizeof line, stdin) != NULL) {
        /* Time for a recorder to finish with the round before. */
        sim_sleep_until(sim_now_ns() + 10 * MS);
        printf("%.2f\n", measure(comm, stream, count));
        fflush(stdout);
    }
}

static double launches(void *comm, void *stream, long count)
{
    static const struct rt_dim3 one = {1, 1, 1};
    uint64_t length_ns = 0;
    void *arguments[] = {&length_ns};
    (void)comm;
    uint64_t begin_ns = sim_now_ns();
    for (long i = 0; i < count; i++)
        OK(RT(LaunchKernel)(kernel, one, one, arguments, 0, stream));
    return (double)(sim_now_ns() - begin_ns) / (double)count;
}

static double collectives(void *comm, void *stream, long count)
{
    uint64_t begin_ns = sim_now_ns();
    for (long i = 0; i < count; i++)
        OK(CCL(AllReduce)(NULL, NULL, 1000, CCL_FLOAT, 0, comm, stream));
    return (double)(sim_now_ns() - begin_ns) / (double)count;
}

static void cost_of_launches(char **arguments)
{
    serve(launches, NULL, atol(arguments[0]));
}

static void cost_of_collectives(char **arguments)
{
    struct ccl_id id;
    void *comm = NULL;
    OK(CCL(GetUniqueId)(&id));
    OK(CCL(CommInitRank)(&comm, 1, id, 0));
    serve(collectives, comm, atol(arguments[0]));
}

const struct scene scenes[] = {
    {"launches", cost_of_launches},
    {"collectives", cost_of_collectives},
    {NULL, NULL},
};
