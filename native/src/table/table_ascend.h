/* Ascend: the runtime (AscendCL) and HCCL. See table.h. */
#ifndef RELKIT_HOOKS_TABLE_ASCEND_H
#define RELKIT_HOOKS_TABLE_ASCEND_H

#define RK_SYMBOL_ACL_LAUNCH "aclrtLaunchKernel"
#define RK_SYMBOL_ACL_LAUNCH_CONFIG "aclrtLaunchKernelWithConfig"
#define RK_SYMBOL_ACL_LAUNCH_V2 "aclrtLaunchKernelV2"
#define RK_SYMBOL_ACL_LAUNCH_HOST_ARGS "aclrtLaunchKernelWithHostArgs"
#define RK_SYMBOL_ACL_GRAPH_LAUNCH "aclmdlRIExecuteAsync"
#define RK_SYMBOL_ACL_MEMCPY "aclrtMemcpy"
#define RK_SYMBOL_ACL_MEMCPY_ASYNC "aclrtMemcpyAsync"
#define RK_SYMBOL_ACL_MEMSET "aclrtMemset"
#define RK_SYMBOL_ACL_MEMSET_ASYNC "aclrtMemsetAsync"
#define RK_SYMBOL_ACL_MALLOC "aclrtMalloc"
#define RK_SYMBOL_ACL_FREE "aclrtFree"
#define RK_SYMBOL_ACL_MALLOC_HOST "aclrtMallocHost"
#define RK_SYMBOL_ACL_FREE_HOST "aclrtFreeHost"
#define RK_SYMBOL_ACL_STREAM_SYNC "aclrtSynchronizeStream"
#define RK_SYMBOL_ACL_STREAM_SYNC_LIMIT "aclrtSynchronizeStreamWithTimeout"
#define RK_SYMBOL_ACL_EVENT_SYNC "aclrtSynchronizeEvent"
#define RK_SYMBOL_ACL_DEVICE_SYNC "aclrtSynchronizeDevice"
#define RK_SYMBOL_ACL_DEVICE_RESET "aclrtResetDevice"
#define RK_SYMBOL_ACL_FINALIZE "aclFinalize"

#define RK_SYMBOL_HCCL_ALLREDUCE "HcclAllReduce"
#define RK_SYMBOL_HCCL_BROADCAST "HcclBroadcast"
#define RK_SYMBOL_HCCL_REDUCE "HcclReduce"
#define RK_SYMBOL_HCCL_ALLGATHER "HcclAllGather"
#define RK_SYMBOL_HCCL_REDUCE_SCATTER "HcclReduceScatter"
#define RK_SYMBOL_HCCL_SCATTER "HcclScatter"
#define RK_SYMBOL_HCCL_ALLTOALL "HcclAlltoAll"
#define RK_SYMBOL_HCCL_ALLTOALLV "HcclAlltoAllV"
#define RK_SYMBOL_HCCL_BARRIER "HcclBarrier"
#define RK_SYMBOL_HCCL_SEND "HcclSend"
#define RK_SYMBOL_HCCL_RECV "HcclRecv"
#define RK_SYMBOL_HCCL_BATCH "HcclBatchSendRecv"
#define RK_SYMBOL_HCCL_INIT_RANK "HcclCommInitRootInfo"
#define RK_SYMBOL_HCCL_INIT_RANK_CONFIG "HcclCommInitRootInfoConfig"
#define RK_SYMBOL_HCCL_INIT_CLUSTER "HcclCommInitClusterInfo"
#define RK_SYMBOL_HCCL_INIT_CLUSTER_CONFIG "HcclCommInitClusterInfoConfig"
#define RK_SYMBOL_HCCL_INIT_ALL "HcclCommInitAll"
#define RK_SYMBOL_HCCL_SUBGROUP "HcclCreateSubCommConfig"
#define RK_SYMBOL_HCCL_DESTROY "HcclCommDestroy"

#define RELKIT_ACL_HOOKS(X)                                                                        \
    X(ACL_LAUNCH, ascend, KERNEL, "launch", 0)                                                     \
    X(ACL_LAUNCH_CONFIG, ascend, KERNEL, "launch_ex", 0)                                           \
    X(ACL_LAUNCH_V2, ascend, KERNEL, "launch", 0)                                                  \
    X(ACL_LAUNCH_HOST_ARGS, ascend, KERNEL, "launch", 0)                                           \
    X(ACL_GRAPH_LAUNCH, ascend, KERNEL, "graph_launch", 0)                                         \
    X(ACL_MEMCPY, ascend, MEMORY, "memcpy", 0)                                                     \
    X(ACL_MEMCPY_ASYNC, ascend, MEMORY, "memcpy_async", 0)                                         \
    X(ACL_MEMSET, ascend, MEMORY, "memset", 0)                                                     \
    X(ACL_MEMSET_ASYNC, ascend, MEMORY, "memset_async", 0)                                         \
    X(ACL_MALLOC, ascend, MEMORY, "malloc", 0)                                                     \
    X(ACL_FREE, ascend, MEMORY, "free", 0)                                                         \
    X(ACL_MALLOC_HOST, ascend, MEMORY, "malloc_host", 0)                                           \
    X(ACL_FREE_HOST, ascend, MEMORY, "free_host", 0)                                               \
    X(ACL_STREAM_SYNC, ascend, WAIT, "stream_sync", 0)                                             \
    X(ACL_STREAM_SYNC_LIMIT, ascend, WAIT, "stream_sync", 0)                                       \
    X(ACL_EVENT_SYNC, ascend, WAIT, "event_sync", 0)                                               \
    X(ACL_DEVICE_SYNC, ascend, WAIT, "device_sync", 0)                                             \
    X(ACL_DEVICE_RESET, ascend, INTERNAL, "device_reset", 0)                                       \
    X(ACL_FINALIZE, ascend, INTERNAL, "finalize", 0)

#define RELKIT_HCCL_HOOKS(X)                                                                       \
    X(HCCL_ALLREDUCE, ascend, COLLECTIVE, "allreduce", 0)                                          \
    X(HCCL_BROADCAST, ascend, COLLECTIVE, "broadcast", 0)                                          \
    X(HCCL_REDUCE, ascend, COLLECTIVE, "reduce", 0)                                                \
    X(HCCL_ALLGATHER, ascend, COLLECTIVE, "allgather", 0)                                          \
    X(HCCL_REDUCE_SCATTER, ascend, COLLECTIVE, "reduce_scatter", 0)                                \
    X(HCCL_SCATTER, ascend, COLLECTIVE, "scatter", 0)                                              \
    X(HCCL_ALLTOALL, ascend, COLLECTIVE, "alltoall", 0)                                            \
    X(HCCL_ALLTOALLV, ascend, COLLECTIVE, "alltoallv", 0)                                          \
    X(HCCL_BARRIER, ascend, COLLECTIVE, "barrier", 0)                                              \
    X(HCCL_SEND, ascend, P2P, "send", 0)                                                           \
    X(HCCL_RECV, ascend, P2P, "recv", 0)                                                           \
    X(HCCL_BATCH, ascend, P2P, "send_recv", 0)                                                     \
    X(HCCL_INIT_RANK, ascend, COLLECTIVE, "comm_init", 0)                                          \
    X(HCCL_INIT_RANK_CONFIG, ascend, COLLECTIVE, "comm_init", 0)                                   \
    X(HCCL_INIT_CLUSTER, ascend, COLLECTIVE, "comm_init", 0)                                       \
    X(HCCL_INIT_CLUSTER_CONFIG, ascend, COLLECTIVE, "comm_init", 0)                                \
    X(HCCL_INIT_ALL, ascend, COLLECTIVE, "comm_init", 0)                                           \
    X(HCCL_SUBGROUP, ascend, COLLECTIVE, "comm_split", 0)                                          \
    X(HCCL_DESTROY, ascend, COLLECTIVE, "comm_destroy", 0)

/* First and last row of each library, for platforms.c. */
#ifndef RELKIT_SYMBOLS_ONLY
#define RK_HOOK_ACL_FIRST RK_HOOK_ACL_LAUNCH
#define RK_HOOK_ACL_LAST RK_HOOK_ACL_FINALIZE
#define RK_HOOK_HCCL_FIRST RK_HOOK_HCCL_ALLREDUCE
#define RK_HOOK_HCCL_LAST RK_HOOK_HCCL_DESTROY
#endif

#endif
