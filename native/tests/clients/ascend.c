/* The scenes of Ascend, see work.c and ranks.c. */
#define _GNU_SOURCE
#include <string.h>

#include "../sim/acl_api.h"
#include "../sim/sim.h"
#include "client.h"

static char kernel[8];

static void launch(void *stream, uint64_t length_ns)
{
    OK(aclrtLaunchKernel(kernel, 8, &length_ns, sizeof length_ns, stream));
}

static void *start(void)
{
    void *stream = NULL;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    return stream;
}

static void work(char **arguments)
{
    (void)arguments;
    void *stream = start(), *device = NULL, *host = NULL;
    OK(aclrtMalloc(&device, 4096, 0));
    expect_call("malloc", 4096);
    OK(aclrtMallocHost(&host, 4096));
    expect_call("malloc_host", 4096);
    OK(sim_hold(stream));
    for (uint64_t ms = 2; ms <= 5; ms++) {
        launch(stream, ms * MS);
        expect_work("launch", 0, 0, ms * MS);
    }
    sim_set_length(SIM_LENGTH_COPY, 3 * MS);
    OK(aclrtMemcpyAsync(device, 4096, host, 2048, 1, stream));
    expect_work("memcpy_async", 2048, 0, 3 * MS);
    OK(aclrtMemsetAsync(device, 4096, 7, 1024, stream));
    expect_work("memset_async", 1024, 0, 3 * MS);
    OK(aclrtMemset(host, 4096, 1, 4096));
    expect_call("memset", 4096);
    OK(aclrtMemcpy(host, 4096, host, 128, 0));
    expect_call("memcpy", 128);
    sim_let_go();
    OK(aclrtSynchronizeStreamWithTimeout(stream, 60000));
    meet();
    expect_number("device_byte", *(char *)device);
    OK(aclrtFreeHost(host));
    OK(aclrtFree(device));
    OK(aclrtDestroyStream(stream));
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    tell_counts();
}

static void graph(char **arguments)
{
    (void)arguments;
    void *stream = start(), *other = NULL, *captured = NULL;
    OK(aclrtCreateStream(&other));
    OK(sim_hold(other));
    launch(other, 30 * MS);
    sim_let_go();
    expect_work("launch", 0, 0, 30 * MS);
    /* The mode that leaves other threads alone: Ascend's events cannot be asked otherwise. */
    OK(aclmdlRICaptureBegin(stream, SIM_MODE_RELAXED));
    for (int i = 0; i < 3; i++)
        launch(stream, 4 * MS);
    sim_sleep_until(sim_now_ns() + 20 * MS);
    OK(aclmdlRICaptureEnd(stream, &captured));
    expect_number("captured_events", sim_graph_events(captured));
    OK(aclrtSynchronizeStream(other));
    OK(sim_hold(stream));
    for (int i = 0; i < 2; i++) {
        OK(aclmdlRIExecuteAsync(captured, stream));
        expect_work("graph_launch", 0, 0, 12 * MS);
    }
    sim_let_go();
    OK(aclrtSynchronizeStream(stream));
    meet();
    OK(aclmdlRIDestroy(captured));
    OK(aclrtResetDevice(0));
    tell_counts();
}

static void round_of_launches(void *stream, long count)
{
    for (long i = 0; i < count; i++)
        launch(stream, 0);
    OK(aclrtSynchronizeStream(stream));
}

static void many(char **arguments)
{
    void *stream = start();
    round_of_launches(stream, 100000);
    expect_number("events_before", sim_counted(SIM_EVENTS));
    int64_t before = resident_bytes();
    round_of_launches(stream, atol(arguments[0]));
    expect_number("grown_bytes", resident_bytes() - before);
    expect_number("events_after", sim_counted(SIM_EVENTS));
    meet();
    OK(aclrtResetDevice(0));
    tell_counts();
}

static void *make_world(const char *path)
{
    struct hccl_root_info info;
    void *comm = NULL;
    if (rank_number() == 0)
        OK(HcclGetRootInfo(&info));
    share(path, &info, sizeof info);
    OK(HcclCommInitRootInfo((uint32_t)rank_count(), &info, (uint32_t)rank_number(), &comm));
    return comm;
}

static void collectives(void *comm, void *stream)
{
    uint64_t ranks = (uint64_t)rank_count();
    OK(HcclAllReduce(NULL, NULL, 1000, HCCL_FP32, 0, comm, stream));
    expect_transfer("allreduce", "world", 0, 4000, -1);
    OK(HcclAllGather(NULL, NULL, 100, HCCL_FP16, comm, stream));
    expect_transfer("allgather", "world", 1, 200 * ranks, -1);
    OK(HcclReduceScatter(NULL, NULL, 50, HCCL_FP64, 0, comm, stream));
    expect_transfer("reduce_scatter", "world", 2, 400 * ranks, -1);
    OK(HcclBroadcast(NULL, 10, HCCL_INT8, 1, comm, stream));
    expect_transfer("broadcast", "world", 3, 10, 1);
    OK(HcclReduce(NULL, NULL, 10, HCCL_FP32, 0, 0, comm, stream));
    expect_transfer("reduce", "world", 4, 40, 0);
    OK(HcclBarrier(comm, stream));
    expect_transfer("barrier", "world", 5, 0, -1);
}

static void pairs(void *comm, void *stream)
{
    uint32_t peer = 1 - (uint32_t)rank_number();
    struct hccl_send_recv both[] = {{0, NULL, 64, HCCL_FP16, peer}, {1, NULL, 64, HCCL_FP16, peer}};
    OK(HcclBatchSendRecv(both, 2, comm, stream));
    expect_transfer("send", "world", 0, 128, (int)peer);
    expect_transfer("recv", "world", 0, 128, (int)peer);
    if (rank_number() == 0)
        OK(HcclSend(NULL, 5, HCCL_FP32, peer, comm, stream));
    else
        OK(HcclRecv(NULL, 5, HCCL_FP32, peer, comm, stream));
    expect_transfer(rank_number() == 0 ? "send" : "recv", "world", 1, 20, (int)peer);
}

static void in_a_child(void *comm, void *stream)
{
    void *child = NULL;
    uint32_t ranks[] = {0, 1};
    OK(HcclCreateSubCommConfig(&comm, 2, ranks, 77, (uint32_t)rank_number(), NULL, &child));
    for (long seq = 0; seq < 3; seq++) {
        OK(HcclAllReduce(NULL, NULL, 100, HCCL_FP32, 0, child, stream));
        expect_transfer("allreduce", "child", seq, 400, -1);
    }
    sim_let_go();
    OK(aclrtSynchronizeStream(stream));
    OK(HcclCommDestroy(child));
}

static void transfers(char **arguments)
{
    void *first = start(), *second = NULL;
    OK(aclrtCreateStream(&second));
    sim_set_length(SIM_LENGTH_TRANSFER, 4 * MS);
    void *comm = make_world(arguments[0]);
    OK(sim_hold(first));
    OK(sim_hold(second));
    collectives(comm, first);
    pairs(comm, first);
    in_a_child(comm, second);
    OK(aclrtSynchronizeStream(first));
    OK(HcclCommDestroy(comm));
    meet();
    OK(aclrtResetDevice(0));
    tell_counts();
}

/* HCCL has no abort: what hangs, hangs. */
static void hang(char **arguments)
{
    void *stream = start();
    sim_set_length(SIM_LENGTH_TRANSFER, MS);
    void *comm = make_world(arguments[0]);
    for (int i = 0; i < 3; i++) {
        OK(HcclAllReduce(NULL, NULL, 1000, HCCL_FP32, 0, comm, stream));
        OK(aclrtSynchronizeStream(stream));
    }
    meet();
    bool last = rank_number() == rank_count() - 1;
    if (last && strcmp(arguments[1], "kernel") == 0)
        launch(stream, SIM_FOR_EVER);
    if (!last || strcmp(arguments[1], "host") != 0) {
        OK(HcclAllReduce(NULL, NULL, 1000, HCCL_FP32, 0, comm, stream));
        OK(aclrtSynchronizeStream(stream));
    }
    meet();
}

const struct scene scenes[] = {
    {"work", work},           {"graph", graph}, {"many", many},
    {"transfers", transfers}, {"hang", hang},   {NULL, NULL},
};
