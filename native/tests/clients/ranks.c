/* Ranks that talk by NCCL, RCCL or mccl: `transfers FILE` and `hang FILE HOW`; the unique id goes from
 * rank 0 to the others by FILE. */
#define _GNU_SOURCE
#include <string.h>

#include "../sim/ccl_api.h"
#include "../sim/runtime_api.h"
#include "../sim/sim.h"
#include "client.h"
#include "scenes.h"

static char kernel[8];

static void *make_world(const char *path)
{
    struct ccl_id id;
    void *comm = NULL;
    if (rank_number() == 0)
        OK(CCL(GetUniqueId)(&id));
    share(path, &id, sizeof id);
    OK(CCL(CommInitRank)(&comm, rank_count(), id, rank_number()));
    return comm;
}

static long collectives(void *comm, void *stream)
{
    uint64_t ranks = (uint64_t)rank_count();
    OK(CCL(AllReduce)(NULL, NULL, 1000, CCL_FLOAT, 0, comm, stream));
    expect_transfer("allreduce", "world", 0, 4000, -1);
    OK(CCL(AllGather)(NULL, NULL, 100, CCL_HALF, comm, stream));
    expect_transfer("allgather", "world", 1, 200 * ranks, -1);
    OK(CCL(ReduceScatter)(NULL, NULL, 50, CCL_DOUBLE, 0, comm, stream));
    expect_transfer("reduce_scatter", "world", 2, 400 * ranks, -1);
    OK(CCL(Broadcast)(NULL, NULL, 10, CCL_INT8, 1, comm, stream));
    expect_transfer("broadcast", "world", 3, 10, 1);
    OK(CCL(Reduce)(NULL, NULL, 10, CCL_FLOAT, 0, 0, comm, stream));
    expect_transfer("reduce", "world", 4, 40, 0);
    OK(CCL(Bcast)(NULL, 20, CCL_FLOAT, 0, comm, stream));
    expect_transfer("broadcast", "world", 5, 80, 0);
#ifdef SIM_OLD_CCL
    return 6;
#else
    OK(CCL(AlltoAll)(NULL, NULL, 8, CCL_FLOAT, comm, stream));
    expect_transfer("alltoall", "world", 6, 32 * ranks, -1);
    return 7;
#endif
}

static void pairs(void *comm, void *stream)
{
    int peer = 1 - rank_number();
    OK(CCL(GroupStart)());
    OK(CCL(Send)(NULL, 64, CCL_HALF, peer, comm, stream));
    OK(CCL(Recv)(NULL, 32, CCL_DOUBLE, peer, comm, stream));
    OK(CCL(GroupEnd)());
    expect_transfer("send", "world", 0, 128, peer);
    expect_transfer("recv", "world", 0, 256, peer);
    if (rank_number() == 0)
        OK(CCL(Send)(NULL, 5, CCL_FLOAT, peer, comm, stream));
    else
        OK(CCL(Recv)(NULL, 5, CCL_FLOAT, peer, comm, stream));
    expect_transfer(rank_number() == 0 ? "send" : "recv", "world", 1, 20, peer);
}

static void coalesced(void *comm, void *stream, long seq)
{
    OK(CCL(GroupStart)());
    OK(CCL(AllReduce)(NULL, NULL, 11, CCL_FLOAT, 0, comm, stream));
    OK(CCL(AllReduce)(NULL, NULL, 12, CCL_FLOAT, 0, comm, stream));
    OK(CCL(GroupEnd)());
    expect_transfer("allreduce", "world", seq, 44, -1);
    expect_transfer("allreduce", "world", seq + 1, 48, -1);
}

#ifndef SIM_OLD_CCL
static void in_a_child(void *comm, void *stream)
{
    void *child = NULL;
    OK(CCL(CommSplit)(comm, 0, rank_count() - rank_number(), &child, NULL));
    for (long seq = 0; seq < 3; seq++) {
        OK(CCL(AllReduce)(NULL, NULL, 100, CCL_FLOAT, 0, child, stream));
        expect_transfer("allreduce", "child", seq, 400, -1);
    }
    sim_let_go();
    OK(RT(StreamSynchronize)(stream));
    OK(CCL(CommFinalize)(child));
    OK(CCL(CommDestroy)(child));
}
#endif

/* Other ranks' collectives in a graph: replayed, and not recorded one by one. */
static void in_a_graph(void *comm, void *stream)
{
    void *captured = NULL;
    OK(RT(StreamBeginCapture)(stream, SIM_MODE_GLOBAL));
    OK(CCL(AllReduce)(NULL, NULL, 100, CCL_FLOAT, 0, comm, stream));
    OK(RT(StreamEndCapture)(stream, &captured));
    expect_number("captured_events", sim_graph_events(captured));
    for (int i = 0; i < 2; i++)
        OK(RT(GraphLaunch)(captured, stream));
    OK(RT(StreamSynchronize)(stream));
    OK(RT(GraphDestroy)(captured));
}

void transfers(char **arguments)
{
    void *first = NULL, *second = NULL;
    OK(RT(StreamCreate)(&first));
    OK(RT(StreamCreate)(&second));
    sim_set_length(SIM_LENGTH_TRANSFER, 4 * MS);
    void *comm = make_world(arguments[0]);
    OK(sim_hold(first));
    long seq = collectives(comm, first);
    pairs(comm, first);
    coalesced(comm, first, seq);
#ifndef SIM_OLD_CCL
    OK(sim_hold(second));
    in_a_child(comm, second);
#endif
    sim_let_go();
    OK(RT(StreamSynchronize)(first));
    in_a_graph(comm, first);
    OK(CCL(CommDestroy)(comm));
    OK(RT(GetLastError)());
    meet();
    OK(RT(DeviceReset)());
    tell_counts();
}

/* HOW: "device" (by SIM_STALL, in the middle of a collective), "kernel" (one before it spins), or
 * "host" (the last rank does not call). */
void hang(char **arguments)
{
    void *stream = NULL;
    bool last = rank_number() == rank_count() - 1;
    OK(RT(StreamCreate)(&stream));
    sim_set_length(SIM_LENGTH_TRANSFER, MS);
    void *comm = make_world(arguments[0]);
    for (int i = 0; i < 3; i++) {
        OK(CCL(AllReduce)(NULL, NULL, 1000, CCL_FLOAT, 0, comm, stream));
        OK(RT(StreamSynchronize)(stream));
    }
    meet();
    if (last && strcmp(arguments[1], "kernel") == 0) {
        uint64_t length_ns = SIM_FOR_EVER;
        void *kernel_arguments[] = {&length_ns};
        static const struct rt_dim3 one = {1, 1, 1};
        OK(RT(LaunchKernel)(kernel, one, one, kernel_arguments, 0, stream));
    }
    if (!last || strcmp(arguments[1], "host") != 0) {
        OK(CCL(AllReduce)(NULL, NULL, 1000, CCL_FLOAT, 0, comm, stream));
        OK(RT(StreamSynchronize)(stream));
    }
    meet();
    int error = 0;
    OK(CCL(CommGetAsyncError)(comm, &error));
    expect_number("async_error", error);
    expect_number("next", CCL(AllReduce)(NULL, NULL, 1, CCL_FLOAT, 0, comm, stream));
    expect_number("destroyed", CCL(CommDestroy)(comm));
    tell_counts();
}
