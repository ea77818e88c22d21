/* HIP: runtime, hipBLAS and hipBLASLt. RCCL stands in table_nccl.h. See table.h. */
#ifndef RELKIT_HOOKS_TABLE_HIP_H
#define RELKIT_HOOKS_TABLE_HIP_H

#define RK_SYMBOL_HIP_LAUNCH "hipLaunchKernel"
#define RK_SYMBOL_HIP_LAUNCH_EX "hipLaunchKernelExC"
#define RK_SYMBOL_HIP_LAUNCH_COOPERATIVE "hipLaunchCooperativeKernel"
#define RK_SYMBOL_HIP_GRAPH_LAUNCH "hipGraphLaunch"
#define RK_SYMBOL_HIP_MEMCPY "hipMemcpy"
#define RK_SYMBOL_HIP_MEMCPY_ASYNC "hipMemcpyAsync"
#define RK_SYMBOL_HIP_MEMSET "hipMemset"
#define RK_SYMBOL_HIP_MEMSET_ASYNC "hipMemsetAsync"
#define RK_SYMBOL_HIP_MALLOC "hipMalloc"
#define RK_SYMBOL_HIP_MALLOC_ASYNC "hipMallocAsync"
#define RK_SYMBOL_HIP_MALLOC_FROM_POOL "hipMallocFromPoolAsync"
#define RK_SYMBOL_HIP_FREE "hipFree"
#define RK_SYMBOL_HIP_FREE_ASYNC "hipFreeAsync"
#define RK_SYMBOL_HIP_MALLOC_HOST "hipMallocHost"
#define RK_SYMBOL_HIP_HOST_ALLOC "hipHostMalloc"
#define RK_SYMBOL_HIP_FREE_HOST "hipHostFree"
#define RK_SYMBOL_HIP_STREAM_SYNC "hipStreamSynchronize"
#define RK_SYMBOL_HIP_EVENT_SYNC "hipEventSynchronize"
#define RK_SYMBOL_HIP_DEVICE_SYNC "hipDeviceSynchronize"
#define RK_SYMBOL_HIP_CAPTURE_BEGIN "hipStreamBeginCapture"
#define RK_SYMBOL_HIP_CAPTURE_END "hipStreamEndCapture"
#define RK_SYMBOL_HIP_DEVICE_RESET "hipDeviceReset"
#define RK_SYMBOL_HIP_LAUNCH_PT "hipLaunchKernel_spt"
#define RK_SYMBOL_HIP_LAUNCH_EX_PT "hipLaunchKernelExC_spt"
#define RK_SYMBOL_HIP_LAUNCH_COOPERATIVE_PT "hipLaunchCooperativeKernel_spt"
#define RK_SYMBOL_HIP_GRAPH_LAUNCH_PT "hipGraphLaunch_spt"
#define RK_SYMBOL_HIP_MEMCPY_PT "hipMemcpy_spt"
#define RK_SYMBOL_HIP_MEMCPY_ASYNC_PT "hipMemcpyAsync_spt"
#define RK_SYMBOL_HIP_MEMSET_ASYNC_PT "hipMemsetAsync_spt"
#define RK_SYMBOL_HIP_STREAM_SYNC_PT "hipStreamSynchronize_spt"
#define RK_SYMBOL_HIP_MODULE_LAUNCH "hipModuleLaunchKernel"
#define RK_SYMBOL_HIP_MODULE_LAUNCH_EX "hipDrvLaunchKernelEx"
#define RK_SYMBOL_HIP_MODULE_LAUNCH_COOPERATIVE "hipModuleLaunchCooperativeKernel"
#define RK_SYMBOL_HIP_EXT_MODULE_LAUNCH "hipExtModuleLaunchKernel"

#define RK_SYMBOL_HIPBLAS_SGEMM "hipblasSgemm"
#define RK_SYMBOL_HIPBLAS_DGEMM "hipblasDgemm"
#define RK_SYMBOL_HIPBLAS_HGEMM "hipblasHgemm"
#define RK_SYMBOL_HIPBLAS_SGEMM_BATCHED "hipblasSgemmStridedBatched"
#define RK_SYMBOL_HIPBLAS_GEMM_EX "hipblasGemmEx"
#define RK_SYMBOL_HIPBLAS_GEMM_BATCHED_EX "hipblasGemmBatchedEx"
#define RK_SYMBOL_HIPBLAS_GEMM_STRIDED_EX "hipblasGemmStridedBatchedEx"

#define RK_SYMBOL_HIPBLASLT_MATMUL "hipblasLtMatmul"

#define RELKIT_HIP_HOOKS(X)                                                                        \
    X(HIP_LAUNCH, hip, KERNEL, "launch", 0)                                                        \
    X(HIP_LAUNCH_EX, hip, KERNEL, "launch_ex", 0)                                                  \
    X(HIP_LAUNCH_COOPERATIVE, hip, KERNEL, "launch_cooperative", 0)                                \
    X(HIP_GRAPH_LAUNCH, hip, KERNEL, "graph_launch", 0)                                            \
    X(HIP_MEMCPY, hip, MEMORY, "memcpy", 0)                                                        \
    X(HIP_MEMCPY_ASYNC, hip, MEMORY, "memcpy_async", 0)                                            \
    X(HIP_MEMSET, hip, MEMORY, "memset", 0)                                                        \
    X(HIP_MEMSET_ASYNC, hip, MEMORY, "memset_async", 0)                                            \
    X(HIP_MALLOC, hip, MEMORY, "malloc", 0)                                                        \
    X(HIP_MALLOC_ASYNC, hip, MEMORY, "malloc_async", 0)                                            \
    X(HIP_MALLOC_FROM_POOL, hip, MEMORY, "malloc_from_pool", 0)                                    \
    X(HIP_FREE, hip, MEMORY, "free", 0)                                                            \
    X(HIP_FREE_ASYNC, hip, MEMORY, "free_async", 0)                                                \
    X(HIP_MALLOC_HOST, hip, MEMORY, "malloc_host", 0)                                              \
    X(HIP_HOST_ALLOC, hip, MEMORY, "host_alloc", 0)                                                \
    X(HIP_FREE_HOST, hip, MEMORY, "free_host", 0)                                                  \
    X(HIP_STREAM_SYNC, hip, WAIT, "stream_sync", 0)                                                \
    X(HIP_EVENT_SYNC, hip, WAIT, "event_sync", 0)                                                  \
    X(HIP_DEVICE_SYNC, hip, WAIT, "device_sync", 0)                                                \
    X(HIP_CAPTURE_BEGIN, hip, INTERNAL, "capture_begin", 0)                                        \
    X(HIP_CAPTURE_END, hip, INTERNAL, "capture_end", 0)                                            \
    X(HIP_DEVICE_RESET, hip, INTERNAL, "device_reset", 0)                                          \
    X(HIP_LAUNCH_PT, hip, KERNEL, "launch", 0)                                                     \
    X(HIP_LAUNCH_EX_PT, hip, KERNEL, "launch_ex", 0)                                               \
    X(HIP_LAUNCH_COOPERATIVE_PT, hip, KERNEL, "launch_cooperative", 0)                             \
    X(HIP_GRAPH_LAUNCH_PT, hip, KERNEL, "graph_launch", 0)                                         \
    X(HIP_MEMCPY_PT, hip, MEMORY, "memcpy", 0)                                                     \
    X(HIP_MEMCPY_ASYNC_PT, hip, MEMORY, "memcpy_async", 0)                                         \
    X(HIP_MEMSET_ASYNC_PT, hip, MEMORY, "memset_async", 0)                                         \
    X(HIP_STREAM_SYNC_PT, hip, WAIT, "stream_sync", 0)                                             \
    X(HIP_MODULE_LAUNCH, hip, KERNEL, "launch", 0)                                                 \
    X(HIP_MODULE_LAUNCH_EX, hip, KERNEL, "launch_ex", 0)                                           \
    X(HIP_MODULE_LAUNCH_COOPERATIVE, hip, KERNEL, "launch_cooperative", 0)                         \
    X(HIP_EXT_MODULE_LAUNCH, hip, KERNEL, "launch", 0)

#define RELKIT_HIPBLAS_HOOKS(X)                                                                    \
    X(HIPBLAS_SGEMM, hip, GEMM, "sgemm", 0)                                                        \
    X(HIPBLAS_DGEMM, hip, GEMM, "dgemm", 0)                                                        \
    X(HIPBLAS_HGEMM, hip, GEMM, "hgemm", 0)                                                        \
    X(HIPBLAS_SGEMM_BATCHED, hip, GEMM, "sgemm_batch", 0)                                          \
    X(HIPBLAS_GEMM_EX, hip, GEMM, "gemm", 0)                                                       \
    X(HIPBLAS_GEMM_BATCHED_EX, hip, GEMM, "gemm_batch", 0)                                         \
    X(HIPBLAS_GEMM_STRIDED_EX, hip, GEMM, "gemm_strided_batch", 0)

#define RELKIT_HIPBLASLT_HOOKS(X) X(HIPBLASLT_MATMUL, hip, GEMM, "matmul", 0)

/* First and last row of each library, for platforms.c. */
#ifndef RELKIT_SYMBOLS_ONLY
#define RK_HOOK_HIP_FIRST RK_HOOK_HIP_LAUNCH
#define RK_HOOK_HIP_LAST RK_HOOK_HIP_EXT_MODULE_LAUNCH
#define RK_HOOK_HIPBLAS_FIRST RK_HOOK_HIPBLAS_SGEMM
#define RK_HOOK_HIPBLAS_LAST RK_HOOK_HIPBLAS_GEMM_STRIDED_EX
#define RK_HOOK_HIPBLASLT_FIRST RK_HOOK_HIPBLASLT_MATMUL
#define RK_HOOK_HIPBLASLT_LAST RK_HOOK_HIPBLASLT_MATMUL
#endif

#endif
