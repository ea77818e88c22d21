/* Test double: the part of NCCL, RCCL and mccl that is simulated, as published. */
#ifndef SIM_CCL_API_H
#define SIM_CCL_API_H

#include <stddef.h>
#include <stdint.h>

#include "names.h"

struct ccl_id {
    char bytes[128];
};

/* ncclConfig_t as far as its use here */
struct ccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
    int rest[16];
};

enum { CCL_INT8 = 0, CCL_HALF = 6, CCL_FLOAT = 7, CCL_DOUBLE = 8 };
enum {
    CCL_OK = 0,
    CCL_INVALID_ARGUMENT = 4,
    CCL_INVALID_USAGE = 5,
    CCL_REMOTE_ERROR = 6,
    CCL_IN_PROGRESS = 7,
};

int CCL(GetVersion)(int *version);
int CCL(GetUniqueId)(struct ccl_id *id);
int CCL(CommInitRank)(void **comm, int ranks, struct ccl_id id, int rank);
int CCL(CommInitRankConfig)(void **comm, int ranks, struct ccl_id id, int rank,
                            struct ccl_config *config);
int CCL(CommInitAll)(void **comms, int devices, const int *list);
int CCL(CommSplit)(void *comm, int color, int key, void **child, struct ccl_config *config);
int CCL(CommFinalize)(void *comm);
int CCL(CommDestroy)(void *comm);
int CCL(CommAbort)(void *comm);
int CCL(CommGetAsyncError)(void *comm, int *error);
int CCL(CommCount)(void *comm, int *count);
int CCL(CommUserRank)(void *comm, int *rank);
int CCL(GroupStart)(void);
int CCL(GroupEnd)(void);
int CCL(AllReduce)(const void *in, void *out, size_t count, int type, int op, void *comm,
                   void *stream);
int CCL(Broadcast)(const void *in, void *out, size_t count, int type, int root, void *comm,
                   void *stream);
int CCL(Bcast)(void *buffer, size_t count, int type, int root, void *comm, void *stream);
int CCL(Reduce)(const void *in, void *out, size_t count, int type, int op, int root, void *comm,
                void *stream);
int CCL(AllGather)(const void *in, void *out, size_t count, int type, void *comm, void *stream);
int CCL(ReduceScatter)(const void *in, void *out, size_t count, int type, int op, void *comm,
                       void *stream);
int CCL(AlltoAll)(const void *in, void *out, size_t count, int type, void *comm, void *stream);
int CCL(Gather)(const void *in, void *out, size_t count, int type, int root, void *comm,
                void *stream);
int CCL(Scatter)(const void *in, void *out, size_t count, int type, int root, void *comm,
                 void *stream);
int CCL(Send)(const void *buffer, size_t count, int type, int peer, void *comm, void *stream);
int CCL(Recv)(void *buffer, size_t count, int type, int peer, void *comm, void *stream);

#endif
