/* Several threads launch on streams of their own, while one makes and ends streams and another captures:
 * `threads COUNT`. */
#define _GNU_SOURCE
#include <pthread.h>

#include "../sim/blas_api.h"
#include "../sim/ccl_api.h"
#include "../sim/runtime_api.h"
#include "../sim/sim.h"
#include "client.h"
#include "scenes.h"

enum { LAUNCHERS = 3 };

static char kernel[8];
static long rounds;

static void launch(void *stream, uint64_t length_ns)
{
    static const struct rt_dim3 one = {1, 1, 1};
    void *arguments[] = {&length_ns};
    OK(RT(LaunchKernel)(kernel, one, one, arguments, 0, stream));
}

/* Two launches, a product, a copy a round; 4 calls, and one at the end. */
static void *work_on(void *unused)
{
    void *stream = NULL, *handle = NULL;
    char from[64] = "", to[64];
    OK(RT(SetDevice)(0));
    OK(RT(StreamCreate)(&stream));
    OK(BLAS_V2(Create)(&handle));
    OK(BLAS_V2(SetStream)(handle, stream));
    for (long i = 0; i < rounds; i++) {
        launch(stream, (uint64_t)(i % 3) * 20000);
        OK(BLAS_V2(Sgemm)(handle, OP_N, OP_N, 8, 8, 8, NULL, NULL, 8, NULL, 8, NULL, NULL, 8));
        OK(RT(MemcpyAsync)(to, from, sizeof to, 1, stream));
        launch(stream, 0);
    }
    OK(RT(StreamSynchronize)(stream));
    OK(BLAS_V2(Destroy)(handle));
    return unused;
}

/* A communicator of one rank: collectives alone and in groups; 3 calls a round, and 4 around them. */
static void *talk(void *unused)
{
    void *stream = NULL, *comm = NULL;
    struct ccl_id id;
    OK(RT(SetDevice)(0));
    OK(RT(StreamCreate)(&stream));
    OK(CCL(GetUniqueId)(&id));
    OK(CCL(CommInitRank)(&comm, 1, id, 0));
    for (long i = 0; i < rounds; i++) {
        OK(CCL(AllReduce)(NULL, NULL, 10, CCL_FLOAT, 0, comm, stream));
        OK(CCL(GroupStart)());
        OK(CCL(AllReduce)(NULL, NULL, 10, CCL_FLOAT, 0, comm, stream));
        OK(CCL(Broadcast)(NULL, NULL, 10, CCL_FLOAT, 0, comm, stream));
        OK(CCL(GroupEnd)());
    }
    OK(RT(StreamSynchronize)(stream));
    OK(CCL(CommDestroy)(comm));
    return unused;
}

/* Captures again and again, which forbids the others much, and makes and ends streams; 1 launch in a
 * graph and 1 of the graph a round, and a wait. */
static void *capture(void *unused)
{
    OK(RT(SetDevice)(0));
    for (long i = 0; i < rounds / 10; i++) {
        void *stream = NULL, *graph = NULL;
        OK(RT(StreamCreate)(&stream));
        OK(RT(StreamBeginCapture)(stream, SIM_MODE_THREAD));
        launch(stream, 1000);
        OK(RT(StreamEndCapture)(stream, &graph));
        OK(RT(GraphLaunch)(graph, stream));
        OK(RT(StreamSynchronize)(stream));
        OK(RT(GraphDestroy)(graph));
        OK(RT(StreamDestroy)(stream));
    }
    return unused;
}

void threads(char **arguments)
{
    pthread_t thread[LAUNCHERS + 2];
    rounds = atol(arguments[0]);
    for (int i = 0; i < LAUNCHERS + 2; i++)
        OK(pthread_create(&thread[i], NULL,
                          i < LAUNCHERS    ? work_on
                          : i == LAUNCHERS ? talk
                                           : capture,
                          NULL));
    for (int i = 0; i < LAUNCHERS + 2; i++)
        OK(pthread_join(thread[i], NULL));
    expect_number("calls", LAUNCHERS * (4 * rounds + 1) + 3 * rounds + 3 + 3 * (rounds / 10));
    expect_number("collectives", 3 * rounds);
    meet();
    OK(RT(DeviceReset)());
    tell_counts();
}
