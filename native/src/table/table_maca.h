/* MACA: runtime, mcblas, mcblasLt and mccl. See table.h. */
#ifndef RELKIT_HOOKS_TABLE_MACA_H
#define RELKIT_HOOKS_TABLE_MACA_H

#define RK_SYMBOL_MACA_LAUNCH "mcLaunchKernel"
#define RK_SYMBOL_MACA_LAUNCH_EX "mcLaunchKernelExC"
#define RK_SYMBOL_MACA_LAUNCH_COOPERATIVE "mcLaunchCooperativeKernel"
#define RK_SYMBOL_MACA_GRAPH_LAUNCH "mcGraphLaunch"
#define RK_SYMBOL_MACA_MEMCPY "mcMemcpy"
#define RK_SYMBOL_MACA_MEMCPY_ASYNC "mcMemcpyAsync"
#define RK_SYMBOL_MACA_MEMSET "mcMemset"
#define RK_SYMBOL_MACA_MEMSET_ASYNC "mcMemsetAsync"
#define RK_SYMBOL_MACA_MALLOC "mcMalloc"
#define RK_SYMBOL_MACA_MALLOC_ASYNC "mcMallocAsync"
#define RK_SYMBOL_MACA_MALLOC_FROM_POOL "mcMallocFromPoolAsync"
#define RK_SYMBOL_MACA_FREE "mcFree"
#define RK_SYMBOL_MACA_FREE_ASYNC "mcFreeAsync"
#define RK_SYMBOL_MACA_MALLOC_HOST "mcMallocHost"
#define RK_SYMBOL_MACA_HOST_ALLOC "mcHostAlloc"
#define RK_SYMBOL_MACA_FREE_HOST "mcFreeHost"
#define RK_SYMBOL_MACA_STREAM_SYNC "mcStreamSynchronize"
#define RK_SYMBOL_MACA_EVENT_SYNC "mcEventSynchronize"
#define RK_SYMBOL_MACA_DEVICE_SYNC "mcDeviceSynchronize"
#define RK_SYMBOL_MACA_CAPTURE_BEGIN "mcStreamBeginCapture"
#define RK_SYMBOL_MACA_CAPTURE_END "mcStreamEndCapture"
#define RK_SYMBOL_MACA_DEVICE_RESET "mcDeviceReset"
#define RK_SYMBOL_MACA_MODULE_LAUNCH "mcModuleLaunchKernel"
#define RK_SYMBOL_MACA_MODULE_LAUNCH_EX "mcModuleLaunchKernelEx"
#define RK_SYMBOL_MACA_MODULE_LAUNCH_COOPERATIVE "mcModuleLaunchCooperativeKernel"

#define RK_SYMBOL_MCBLAS_SGEMM "mcblasSgemm"
#define RK_SYMBOL_MCBLAS_DGEMM "mcblasDgemm"
#define RK_SYMBOL_MCBLAS_HGEMM "mcblasHgemm"
#define RK_SYMBOL_MCBLAS_SGEMM_BATCHED "mcblasSgemmStridedBatched"
#define RK_SYMBOL_MCBLAS_GEMM_EX "mcblasGemmEx"
#define RK_SYMBOL_MCBLAS_GEMM_BATCHED_EX "mcblasGemmBatchedEx"
#define RK_SYMBOL_MCBLAS_GEMM_STRIDED_EX "mcblasGemmStridedBatchedEx"

#define RK_SYMBOL_MCBLASLT_MATMUL "mcblasLtMatmul"

#define RK_SYMBOL_MCCL_ALLREDUCE "mcclAllReduce"
#define RK_SYMBOL_MCCL_BROADCAST "mcclBroadcast"
#define RK_SYMBOL_MCCL_BCAST "mcclBcast"
#define RK_SYMBOL_MCCL_REDUCE "mcclReduce"
#define RK_SYMBOL_MCCL_ALLGATHER "mcclAllGather"
#define RK_SYMBOL_MCCL_REDUCE_SCATTER "mcclReduceScatter"
#define RK_SYMBOL_MCCL_ALLTOALL "mcclAlltoAll"
#define RK_SYMBOL_MCCL_GATHER "mcclGather"
#define RK_SYMBOL_MCCL_SCATTER "mcclScatter"
#define RK_SYMBOL_MCCL_SEND "mcclSend"
#define RK_SYMBOL_MCCL_RECV "mcclRecv"
#define RK_SYMBOL_MCCL_GROUP_START "mcclGroupStart"
#define RK_SYMBOL_MCCL_GROUP_END "mcclGroupEnd"
#define RK_SYMBOL_MCCL_INIT_RANK "mcclCommInitRank"
#define RK_SYMBOL_MCCL_INIT_RANK_CONFIG "mcclCommInitRankConfig"
#define RK_SYMBOL_MCCL_INIT_RANK_SCALABLE "mcclCommInitRankScalable"
#define RK_SYMBOL_MCCL_INIT_ALL "mcclCommInitAll"
#define RK_SYMBOL_MCCL_SPLIT "mcclCommSplit"
#define RK_SYMBOL_MCCL_SHRINK "mcclCommShrink"
#define RK_SYMBOL_MCCL_FINALIZE "mcclCommFinalize"
#define RK_SYMBOL_MCCL_DESTROY "mcclCommDestroy"
#define RK_SYMBOL_MCCL_ABORT "mcclCommAbort"
#define RK_SYMBOL_MCCL_ASYNC_ERROR "mcclCommGetAsyncError"

#define RELKIT_MACA_HOOKS(X)                                                                       \
    X(MACA_LAUNCH, maca, KERNEL, "launch", 0)                                                      \
    X(MACA_LAUNCH_EX, maca, KERNEL, "launch_ex", 0)                                                \
    X(MACA_LAUNCH_COOPERATIVE, maca, KERNEL, "launch_cooperative", 0)                              \
    X(MACA_GRAPH_LAUNCH, maca, KERNEL, "graph_launch", 0)                                          \
    X(MACA_MEMCPY, maca, MEMORY, "memcpy", 0)                                                      \
    X(MACA_MEMCPY_ASYNC, maca, MEMORY, "memcpy_async", 0)                                          \
    X(MACA_MEMSET, maca, MEMORY, "memset", 0)                                                      \
    X(MACA_MEMSET_ASYNC, maca, MEMORY, "memset_async", 0)                                          \
    X(MACA_MALLOC, maca, MEMORY, "malloc", 0)                                                      \
    X(MACA_MALLOC_ASYNC, maca, MEMORY, "malloc_async", 0)                                          \
    X(MACA_MALLOC_FROM_POOL, maca, MEMORY, "malloc_from_pool", 0)                                  \
    X(MACA_FREE, maca, MEMORY, "free", 0)                                                          \
    X(MACA_FREE_ASYNC, maca, MEMORY, "free_async", 0)                                              \
    X(MACA_MALLOC_HOST, maca, MEMORY, "malloc_host", 0)                                            \
    X(MACA_HOST_ALLOC, maca, MEMORY, "host_alloc", 0)                                              \
    X(MACA_FREE_HOST, maca, MEMORY, "free_host", 0)                                                \
    X(MACA_STREAM_SYNC, maca, WAIT, "stream_sync", 0)                                              \
    X(MACA_EVENT_SYNC, maca, WAIT, "event_sync", 0)                                                \
    X(MACA_DEVICE_SYNC, maca, WAIT, "device_sync", 0)                                              \
    X(MACA_CAPTURE_BEGIN, maca, INTERNAL, "capture_begin", 0)                                      \
    X(MACA_CAPTURE_END, maca, INTERNAL, "capture_end", 0)                                          \
    X(MACA_DEVICE_RESET, maca, INTERNAL, "device_reset", 0)                                        \
    X(MACA_MODULE_LAUNCH, maca, KERNEL, "launch", 0)                                               \
    X(MACA_MODULE_LAUNCH_EX, maca, KERNEL, "launch_ex", 0)                                         \
    X(MACA_MODULE_LAUNCH_COOPERATIVE, maca, KERNEL, "launch_cooperative", 0)

#define RELKIT_MCBLAS_HOOKS(X)                                                                     \
    X(MCBLAS_SGEMM, maca, GEMM, "sgemm", 0)                                                        \
    X(MCBLAS_DGEMM, maca, GEMM, "dgemm", 0)                                                        \
    X(MCBLAS_HGEMM, maca, GEMM, "hgemm", 0)                                                        \
    X(MCBLAS_SGEMM_BATCHED, maca, GEMM, "sgemm_batch", 0)                                          \
    X(MCBLAS_GEMM_EX, maca, GEMM, "gemm", 0)                                                       \
    X(MCBLAS_GEMM_BATCHED_EX, maca, GEMM, "gemm_batch", 0)                                         \
    X(MCBLAS_GEMM_STRIDED_EX, maca, GEMM, "gemm_strided_batch", 0)

#define RELKIT_MCBLASLT_HOOKS(X) X(MCBLASLT_MATMUL, maca, GEMM, "matmul", 0)

#define RELKIT_MCCL_HOOKS(X)                                                                       \
    X(MCCL_ALLREDUCE, maca, COLLECTIVE, "allreduce", 0)                                            \
    X(MCCL_BROADCAST, maca, COLLECTIVE, "broadcast", 0)                                            \
    X(MCCL_BCAST, maca, COLLECTIVE, "broadcast", 0)                                                \
    X(MCCL_REDUCE, maca, COLLECTIVE, "reduce", 0)                                                  \
    X(MCCL_ALLGATHER, maca, COLLECTIVE, "allgather", 0)                                            \
    X(MCCL_REDUCE_SCATTER, maca, COLLECTIVE, "reduce_scatter", 0)                                  \
    X(MCCL_ALLTOALL, maca, COLLECTIVE, "alltoall", 0)                                              \
    X(MCCL_GATHER, maca, COLLECTIVE, "gather", 0)                                                  \
    X(MCCL_SCATTER, maca, COLLECTIVE, "scatter", 0)                                                \
    X(MCCL_SEND, maca, P2P, "send", 0)                                                             \
    X(MCCL_RECV, maca, P2P, "recv", 0)                                                             \
    X(MCCL_GROUP_START, maca, INTERNAL, "group_start", 0)                                          \
    X(MCCL_GROUP_END, maca, INTERNAL, "group_end", 0)                                              \
    X(MCCL_INIT_RANK, maca, COLLECTIVE, "comm_init", 0)                                            \
    X(MCCL_INIT_RANK_CONFIG, maca, COLLECTIVE, "comm_init", 0)                                     \
    X(MCCL_INIT_RANK_SCALABLE, maca, COLLECTIVE, "comm_init", 0)                                   \
    X(MCCL_INIT_ALL, maca, COLLECTIVE, "comm_init", 0)                                             \
    X(MCCL_SPLIT, maca, COLLECTIVE, "comm_split", 0)                                               \
    X(MCCL_SHRINK, maca, COLLECTIVE, "comm_split", 0)                                              \
    X(MCCL_FINALIZE, maca, COLLECTIVE, "comm_finalize", 0)                                         \
    X(MCCL_DESTROY, maca, COLLECTIVE, "comm_destroy", 0)                                           \
    X(MCCL_ABORT, maca, WAIT, "comm_abort", 0)                                                     \
    X(MCCL_ASYNC_ERROR, maca, INTERNAL, "async_error", 0)

/* First and last row of each library, for platforms.c. */
#ifndef RELKIT_SYMBOLS_ONLY
#define RK_HOOK_MACA_FIRST RK_HOOK_MACA_LAUNCH
#define RK_HOOK_MACA_LAST RK_HOOK_MACA_MODULE_LAUNCH_COOPERATIVE
#define RK_HOOK_MCBLAS_FIRST RK_HOOK_MCBLAS_SGEMM
#define RK_HOOK_MCBLAS_LAST RK_HOOK_MCBLAS_GEMM_STRIDED_EX
#define RK_HOOK_MCBLASLT_FIRST RK_HOOK_MCBLASLT_MATMUL
#define RK_HOOK_MCBLASLT_LAST RK_HOOK_MCBLASLT_MATMUL
#define RK_HOOK_MCCL_FIRST RK_HOOK_MCCL_ALLREDUCE
#define RK_HOOK_MCCL_LAST RK_HOOK_MCCL_ASYNC_ERROR
#endif

#endif
