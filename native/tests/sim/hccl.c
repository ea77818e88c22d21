/* Test double: HCCL. */
#define _GNU_SOURCE
#include "acl_api.h"

#include "group.h"

#pragma GCC visibility push(default)

enum { BAD_PARAMETER = 1, INTERNAL = 4 };

int HcclGetRootInfo(struct hccl_root_info *info)
{
    sim_new_id(info, sizeof *info);
    return 0;
}

static int make(uint32_t ranks, const void *id, uint32_t rank, void **comm)
{
    *comm = sim_comm_new("hccl", id, (int)rank, (int)ranks);
    if (*comm == NULL)
        return BAD_PARAMETER;
    return sim_comm_join(*comm) ? 0 : INTERNAL;
}

int HcclCommInitRootInfo(uint32_t ranks, const struct hccl_root_info *info, uint32_t rank,
                         void **comm)
{
    return make(ranks, info, rank, comm);
}

int HcclCreateSubCommConfig(void **parent, uint32_t ranks, uint32_t *list, uint64_t number,
                            uint32_t rank, void *config, void **comm)
{
    (void)list, (void)config;
    uint8_t id[SIM_ID_BYTES];
    struct sim_comm *known = sim_comm_of(*parent);
    if (known == NULL)
        return BAD_PARAMETER;
    sim_comm_child_id(known, number, id);
    return make(ranks, id, rank, comm);
}

int HcclCommDestroy(void *comm)
{
    if (sim_comm_of(comm) == NULL)
        return BAD_PARAMETER;
    sim_comm_end(comm);
    return 0;
}

int HcclGetRankSize(void *comm, uint32_t *size)
{
    struct sim_comm *known = sim_comm_of(comm);
    *size = known != NULL ? (uint32_t)sim_comm_size(known) : 0;
    return known != NULL ? 0 : BAD_PARAMETER;
}

int HcclGetRankId(void *comm, uint32_t *rank)
{
    struct sim_comm *known = sim_comm_of(comm);
    *rank = known != NULL ? (uint32_t)sim_comm_rank(known) : 0;
    return known != NULL ? 0 : BAD_PARAMETER;
}

static uint64_t bytes_of(uint64_t count, int type)
{
    static const uint8_t bytes[] = {1, 2, 4, 2, 4, 8, 8, 1, 2, 4, 8, 2};
    return count * bytes[type];
}

static int run(const char *label, void *handle, void *stream, uint64_t bytes, int kind, int peer)
{
    struct sim_comm *comm = sim_comm_of(handle);
    if (comm == NULL || peer >= sim_comm_size(comm))
        return BAD_PARAMETER;
    struct sim_item item = {
        .comm = comm, .label = label, .bytes = bytes, .kind = kind, .peer = peer};
    return sim_batch_enqueue(stream, &item, 1) == SIM_OK ? 0 : INTERNAL;
}

int HcclAllReduce(void *in, void *out, uint64_t count, int type, int op, void *comm, void *stream)
{
    (void)in, (void)out, (void)op;
    return run("allreduce", comm, stream, bytes_of(count, type), SIM_COLLECTIVE, -1);
}

int HcclBroadcast(void *buffer, uint64_t count, int type, uint32_t root, void *comm, void *stream)
{
    (void)buffer, (void)root;
    return run("broadcast", comm, stream, bytes_of(count, type), SIM_COLLECTIVE, -1);
}

int HcclReduce(void *in, void *out, uint64_t count, int type, int op, uint32_t root, void *comm,
               void *stream)
{
    (void)in, (void)out, (void)op, (void)root;
    return run("reduce", comm, stream, bytes_of(count, type), SIM_COLLECTIVE, -1);
}

int HcclAllGather(void *in, void *out, uint64_t count, int type, void *comm, void *stream)
{
    (void)in, (void)out;
    return run("allgather", comm, stream, bytes_of(count, type), SIM_COLLECTIVE, -1);
}

int HcclReduceScatter(void *in, void *out, uint64_t count, int type, int op, void *comm,
                      void *stream)
{
    (void)in, (void)out, (void)op;
    return run("reduce_scatter", comm, stream, bytes_of(count, type), SIM_COLLECTIVE, -1);
}

int HcclBarrier(void *comm, void *stream)
{
    return run("barrier", comm, stream, 0, SIM_COLLECTIVE, -1);
}

int HcclSend(void *buffer, uint64_t count, int type, uint32_t peer, void *comm, void *stream)
{
    (void)buffer;
    return run("send", comm, stream, bytes_of(count, type), SIM_SEND, (int)peer);
}

int HcclRecv(void *buffer, uint64_t count, int type, uint32_t peer, void *comm, void *stream)
{
    (void)buffer;
    return run("recv", comm, stream, bytes_of(count, type), SIM_RECEIVE, (int)peer);
}

int HcclBatchSendRecv(struct hccl_send_recv *items, uint32_t count, void *handle, void *stream)
{
    struct sim_item batch[SIM_BATCH];
    struct sim_comm *comm = sim_comm_of(handle);
    if (comm == NULL || count > SIM_BATCH)
        return BAD_PARAMETER;
    for (uint32_t i = 0; i < count; i++)
        batch[i] = (struct sim_item){.comm = comm,
                                     .label = items[i].kind == 0 ? "send" : "recv",
                                     .bytes = bytes_of(items[i].count, items[i].type),
                                     .kind = items[i].kind == 0 ? SIM_SEND : SIM_RECEIVE,
                                     .peer = (int)items[i].peer};
    return sim_batch_enqueue(stream, batch, count) == SIM_OK ? 0 : INTERNAL;
}
