/* NCCL, whose names RCCL has too, and what RCCL has besides. See table.h. */
#ifndef RELKIT_HOOKS_TABLE_NCCL_H
#define RELKIT_HOOKS_TABLE_NCCL_H

#define RK_SYMBOL_NCCL_ALLREDUCE "ncclAllReduce"
#define RK_SYMBOL_NCCL_BROADCAST "ncclBroadcast"
#define RK_SYMBOL_NCCL_BCAST "ncclBcast"
#define RK_SYMBOL_NCCL_REDUCE "ncclReduce"
#define RK_SYMBOL_NCCL_ALLGATHER "ncclAllGather"
#define RK_SYMBOL_NCCL_REDUCE_SCATTER "ncclReduceScatter"
#define RK_SYMBOL_NCCL_ALLTOALL "ncclAlltoAll"
#define RK_SYMBOL_NCCL_GATHER "ncclGather"
#define RK_SYMBOL_NCCL_SCATTER "ncclScatter"
#define RK_SYMBOL_NCCL_SEND "ncclSend"
#define RK_SYMBOL_NCCL_RECV "ncclRecv"
#define RK_SYMBOL_NCCL_GROUP_START "ncclGroupStart"
#define RK_SYMBOL_NCCL_GROUP_END "ncclGroupEnd"
#define RK_SYMBOL_NCCL_INIT_RANK "ncclCommInitRank"
#define RK_SYMBOL_NCCL_INIT_RANK_CONFIG "ncclCommInitRankConfig"
#define RK_SYMBOL_NCCL_INIT_RANK_SCALABLE "ncclCommInitRankScalable"
#define RK_SYMBOL_NCCL_INIT_ALL "ncclCommInitAll"
#define RK_SYMBOL_NCCL_SPLIT "ncclCommSplit"
#define RK_SYMBOL_NCCL_SHRINK "ncclCommShrink"
#define RK_SYMBOL_NCCL_FINALIZE "ncclCommFinalize"
#define RK_SYMBOL_NCCL_DESTROY "ncclCommDestroy"
#define RK_SYMBOL_NCCL_ABORT "ncclCommAbort"
#define RK_SYMBOL_NCCL_ASYNC_ERROR "ncclCommGetAsyncError"

#define RK_SYMBOL_RCCL_ALLTOALL "ncclAllToAll"
#define RK_SYMBOL_RCCL_ALLTOALLV "ncclAllToAllv"

#define RELKIT_NCCL_HOOKS(X)                                                                       \
    X(NCCL_ALLREDUCE, cuda, COLLECTIVE, "allreduce", 0)                                            \
    X(NCCL_BROADCAST, cuda, COLLECTIVE, "broadcast", 0)                                            \
    X(NCCL_BCAST, cuda, COLLECTIVE, "broadcast", 0)                                                \
    X(NCCL_REDUCE, cuda, COLLECTIVE, "reduce", 0)                                                  \
    X(NCCL_ALLGATHER, cuda, COLLECTIVE, "allgather", 0)                                            \
    X(NCCL_REDUCE_SCATTER, cuda, COLLECTIVE, "reduce_scatter", 0)                                  \
    X(NCCL_ALLTOALL, cuda, COLLECTIVE, "alltoall", 0)                                              \
    X(NCCL_GATHER, cuda, COLLECTIVE, "gather", 0)                                                  \
    X(NCCL_SCATTER, cuda, COLLECTIVE, "scatter", 0)                                                \
    X(NCCL_SEND, cuda, P2P, "send", 0)                                                             \
    X(NCCL_RECV, cuda, P2P, "recv", 0)                                                             \
    X(NCCL_GROUP_START, cuda, INTERNAL, "group_start", 0)                                          \
    X(NCCL_GROUP_END, cuda, INTERNAL, "group_end", 0)                                              \
    X(NCCL_INIT_RANK, cuda, COLLECTIVE, "comm_init", 0)                                            \
    X(NCCL_INIT_RANK_CONFIG, cuda, COLLECTIVE, "comm_init", 0)                                     \
    X(NCCL_INIT_RANK_SCALABLE, cuda, COLLECTIVE, "comm_init", 0)                                   \
    X(NCCL_INIT_ALL, cuda, COLLECTIVE, "comm_init", 0)                                             \
    X(NCCL_SPLIT, cuda, COLLECTIVE, "comm_split", 0)                                               \
    X(NCCL_SHRINK, cuda, COLLECTIVE, "comm_split", 0)                                              \
    X(NCCL_FINALIZE, cuda, COLLECTIVE, "comm_finalize", 0)                                         \
    X(NCCL_DESTROY, cuda, COLLECTIVE, "comm_destroy", 0)                                           \
    X(NCCL_ABORT, cuda, WAIT, "comm_abort", 0)                                                     \
    X(NCCL_ASYNC_ERROR, cuda, INTERNAL, "async_error", 0)

#define RELKIT_RCCL_HOOKS(X)                                                                       \
    X(RCCL_ALLTOALL, hip, COLLECTIVE, "alltoall", 0)                                               \
    X(RCCL_ALLTOALLV, hip, COLLECTIVE, "alltoallv", 0)

/* First and last row of each library, for platforms.c. */
#ifndef RELKIT_SYMBOLS_ONLY
#define RK_HOOK_NCCL_FIRST RK_HOOK_NCCL_ALLREDUCE
#define RK_HOOK_NCCL_LAST RK_HOOK_NCCL_ASYNC_ERROR
#define RK_HOOK_RCCL_FIRST RK_HOOK_RCCL_ALLTOALL
#define RK_HOOK_RCCL_LAST RK_HOOK_RCCL_ALLTOALLV
#endif

#endif
