/* Test double: NCCL, RCCL or mccl. Data is not moved: what is simulated is who waits for whom. */
#define _GNU_SOURCE
#include "ccl_api.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "group.h"

#pragma GCC visibility push(default)

enum { JOINS = 16, VERSION = 22907, NO_COLOR = -1 };

/* What is called between GroupStart and GroupEnd. */
static _Thread_local struct {
    int depth;
    uint32_t count, joins;
    struct sim_item item[SIM_BATCH];
    void *stream[SIM_BATCH];
    struct sim_comm *join[JOINS];
} group;

#ifndef SIM_WITHOUT_VERSION
int CCL(GetVersion)(int *version)
{
    *version = VERSION;
    return CCL_OK;
}
#endif

int CCL(GetUniqueId)(struct ccl_id *id)
{
    sim_new_id(id, sizeof *id);
    return CCL_OK;
}

static int join(struct sim_comm *comm)
{
    if (group.depth != 0 && group.joins < JOINS) {
        group.join[group.joins++] = comm;
        return CCL_OK;
    }
    return sim_comm_join(comm) ? CCL_OK : CCL_REMOTE_ERROR;
}

static int make(void **comm, int ranks, const void *id, int rank)
{
    *comm = sim_comm_new(CCL_LIBRARY, id, rank, ranks);
    return *comm != NULL ? CCL_OK : CCL_INVALID_ARGUMENT;
}

int CCL(CommInitRank)(void **comm, int ranks, struct ccl_id id, int rank)
{
    int error = make(comm, ranks, &id, rank);
    return error == CCL_OK ? join(*comm) : error;
}

#ifndef SIM_OLD_CCL
static void *join_behind(void *comm)
{
    sim_comm_join(comm);
    return NULL;
}

int CCL(CommInitRankConfig)(void **comm, int ranks, struct ccl_id id, int rank,
                            struct ccl_config *config)
{
    int error = make(comm, ranks, &id, rank);
    if (error != CCL_OK || config == NULL || config->blocking != 0)
        return error == CCL_OK ? join(*comm) : error;
    pthread_t thread;
    if (pthread_create(&thread, NULL, join_behind, *comm) != 0)
        return 2;
    pthread_detach(thread);
    return CCL_IN_PROGRESS;
}

int CCL(CommSplit)(void *handle, int color, int key, void **child, struct ccl_config *config)
{
    (void)config;
    struct sim_comm *comm = sim_comm_of(handle);
    uint8_t id[SIM_ID_BYTES];
    int rank, size;
    *child = NULL;
    if (comm == NULL)
        return CCL_INVALID_ARGUMENT;
    if (!sim_comm_split(comm, color, key, id, &rank, &size))
        return color == NO_COLOR ? CCL_OK : CCL_REMOTE_ERROR;
    int error = make(child, size, id, rank);
    return error == CCL_OK ? join(*child) : error;
}

int CCL(CommFinalize)(void *handle)
{
    return sim_comm_of(handle) != NULL ? CCL_OK : CCL_INVALID_ARGUMENT;
}
#endif

int CCL(CommInitAll)(void **comms, int devices, const int *list)
{
    (void)list;
    struct ccl_id id;
    sim_new_id(&id, sizeof id);
    for (int rank = 0; rank < devices; rank++)
        if (make(&comms[rank], devices, &id, rank) != CCL_OK)
            return CCL_INVALID_ARGUMENT;
    return CCL_OK;
}

int CCL(CommDestroy)(void *handle)
{
    struct sim_comm *comm = sim_comm_of(handle);
    if (comm == NULL)
        return CCL_INVALID_ARGUMENT;
    sim_comm_end(comm);
    return CCL_OK;
}

int CCL(CommAbort)(void *handle)
{
    struct sim_comm *comm = sim_comm_of(handle);
    if (comm == NULL)
        return CCL_INVALID_ARGUMENT;
    sim_comm_abort(comm);
    return CCL_OK;
}

int CCL(CommGetAsyncError)(void *handle, int *error)
{
    struct sim_comm *comm = sim_comm_of(handle);
    if (comm == NULL)
        return CCL_INVALID_ARGUMENT;
    *error = sim_comm_is_ready(comm) ? CCL_OK : CCL_IN_PROGRESS;
    return CCL_OK;
}

int CCL(CommCount)(void *handle, int *count)
{
    struct sim_comm *comm = sim_comm_of(handle);
    *count = comm != NULL ? sim_comm_size(comm) : 0;
    return comm != NULL ? CCL_OK : CCL_INVALID_ARGUMENT;
}

int CCL(CommUserRank)(void *handle, int *rank)
{
    struct sim_comm *comm = sim_comm_of(handle);
    *rank = comm != NULL ? sim_comm_rank(comm) : 0;
    return comm != NULL ? CCL_OK : CCL_INVALID_ARGUMENT;
}

int CCL(GroupStart)(void)
{
    group.depth++;
    return CCL_OK;
}

/* All of a group that go to one stream are one piece of work. */
static int flush(void)
{
    int error = CCL_OK;
    for (uint32_t i = 0; i < group.joins; i++)
        if (!sim_comm_join(group.join[i]))
            error = CCL_REMOTE_ERROR;
    for (uint32_t i = 0; i < group.count; i++) {
        struct sim_item items[SIM_BATCH];
        uint32_t count = 0;
        if (group.item[i].comm == NULL)
            continue;
        void *stream = group.stream[i];
        for (uint32_t j = i; j < group.count; j++) {
            if (group.stream[j] != stream || group.item[j].comm == NULL)
                continue;
            items[count++] = group.item[j];
            group.item[j].comm = NULL;
        }
        if (sim_batch_enqueue(stream, items, count) != SIM_OK)
            error = 1;
    }
    group.count = group.joins = 0;
    return error;
}

int CCL(GroupEnd)(void)
{
    if (group.depth == 0)
        return CCL_INVALID_USAGE;
    return --group.depth == 0 ? flush() : CCL_OK;
}

static int run(const char *label, void *handle, void *stream, uint64_t bytes, int kind, int peer)
{
    struct sim_comm *comm = sim_comm_of(handle);
    if (comm == NULL || peer >= sim_comm_size(comm))
        return CCL_INVALID_ARGUMENT;
    struct sim_item item = {
        .comm = comm, .label = label, .bytes = bytes, .kind = kind, .peer = peer};
    int error = sim_fails(label, 0);
    if (error != SIM_OK)
        return error;
    if (group.depth == 0)
        return sim_batch_enqueue(stream, &item, 1) == SIM_OK ? CCL_OK : 1;
    if (group.count == SIM_BATCH)
        return CCL_INVALID_USAGE;
    group.item[group.count] = item;
    group.stream[group.count++] = stream;
    return CCL_OK;
}

static uint64_t bytes_of(size_t count, int type)
{
    static const uint8_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return count * bytes[type];
}

int CCL(AllReduce)(const void *in, void *out, size_t count, int type, int op, void *comm,
                   void *stream)
{
    (void)in, (void)out, (void)op;
    return run("allreduce", comm, stream, bytes_of(count, type), SIM_COLLECTIVE, -1);
}

int CCL(Broadcast)(const void *in, void *out, size_t count, int type, int root, void *comm,
                   void *stream)
{
    (void)in, (void)out, (void)root;
    return run("broadcast", comm, stream, bytes_of(count, type), SIM_COLLECTIVE, -1);
}

int CCL(Bcast)(void *buffer, size_t count, int type, int root, void *comm, void *stream)
{
    return CCL(Broadcast)(buffer, buffer, count, type, root, comm, stream);
}

int CCL(Reduce)(const void *in, void *out, size_t count, int type, int op, int root, void *comm,
                void *stream)
{
    (void)in, (void)out, (void)op, (void)root;
    return run("reduce", comm, stream, bytes_of(count, type), SIM_COLLECTIVE, -1);
}

int CCL(AllGather)(const void *in, void *out, size_t count, int type, void *comm, void *stream)
{
    (void)in, (void)out;
    return run("allgather", comm, stream, bytes_of(count, type), SIM_COLLECTIVE, -1);
}

int CCL(ReduceScatter)(const void *in, void *out, size_t count, int type, int op, void *comm,
                       void *stream)
{
    (void)in, (void)out, (void)op;
    return run("reduce_scatter", comm, stream, bytes_of(count, type), SIM_COLLECTIVE, -1);
}

#ifndef SIM_OLD_CCL
int CCL(AlltoAll)(const void *in, void *out, size_t count, int type, void *comm, void *stream)
{
    (void)in, (void)out;
    return run("alltoall", comm, stream, bytes_of(count, type), SIM_COLLECTIVE, -1);
}

int CCL(Gather)(const void *in, void *out, size_t count, int type, int root, void *comm,
                void *stream)
{
    (void)in, (void)out, (void)root;
    return run("gather", comm, stream, bytes_of(count, type), SIM_COLLECTIVE, -1);
}

int CCL(Scatter)(const void *in, void *out, size_t count, int type, int root, void *comm,
                 void *stream)
{
    (void)in, (void)out, (void)root;
    return run("scatter", comm, stream, bytes_of(count, type), SIM_COLLECTIVE, -1);
}
#endif

int CCL(Send)(const void *buffer, size_t count, int type, int peer, void *comm, void *stream)
{
    (void)buffer;
    return run("send", comm, stream, bytes_of(count, type), SIM_SEND, peer);
}

int CCL(Recv)(void *buffer, size_t count, int type, int peer, void *comm, void *stream)
{
    (void)buffer;
    return run("recv", comm, stream, bytes_of(count, type), SIM_RECEIVE, peer);
}
