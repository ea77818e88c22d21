/* CUDA: the runtime, the driver, cuBLAS and cuBLASLt. See table.h. */
#ifndef RELKIT_HOOKS_TABLE_CUDA_H
#define RELKIT_HOOKS_TABLE_CUDA_H

#define RK_SYMBOL_CUDA_LAUNCH "cudaLaunchKernel"
#define RK_SYMBOL_CUDA_LAUNCH_EX "cudaLaunchKernelExC"
#define RK_SYMBOL_CUDA_LAUNCH_COOPERATIVE "cudaLaunchCooperativeKernel"
#define RK_SYMBOL_CUDA_GRAPH_LAUNCH "cudaGraphLaunch"
#define RK_SYMBOL_CUDA_MEMCPY "cudaMemcpy"
#define RK_SYMBOL_CUDA_MEMCPY_ASYNC "cudaMemcpyAsync"
#define RK_SYMBOL_CUDA_MEMSET "cudaMemset"
#define RK_SYMBOL_CUDA_MEMSET_ASYNC "cudaMemsetAsync"
#define RK_SYMBOL_CUDA_MALLOC "cudaMalloc"
#define RK_SYMBOL_CUDA_MALLOC_ASYNC "cudaMallocAsync"
#define RK_SYMBOL_CUDA_MALLOC_FROM_POOL "cudaMallocFromPoolAsync"
#define RK_SYMBOL_CUDA_FREE "cudaFree"
#define RK_SYMBOL_CUDA_FREE_ASYNC "cudaFreeAsync"
#define RK_SYMBOL_CUDA_MALLOC_HOST "cudaMallocHost"
#define RK_SYMBOL_CUDA_HOST_ALLOC "cudaHostAlloc"
#define RK_SYMBOL_CUDA_FREE_HOST "cudaFreeHost"
#define RK_SYMBOL_CUDA_STREAM_SYNC "cudaStreamSynchronize"
#define RK_SYMBOL_CUDA_EVENT_SYNC "cudaEventSynchronize"
#define RK_SYMBOL_CUDA_DEVICE_SYNC "cudaDeviceSynchronize"
#define RK_SYMBOL_CUDA_CAPTURE_BEGIN "cudaStreamBeginCapture"
#define RK_SYMBOL_CUDA_CAPTURE_END "cudaStreamEndCapture"
#define RK_SYMBOL_CUDA_DEVICE_RESET "cudaDeviceReset"
#define RK_SYMBOL_CUDA_LAUNCH_PT "cudaLaunchKernel_ptsz"
#define RK_SYMBOL_CUDA_LAUNCH_EX_PT "cudaLaunchKernelExC_ptsz"
#define RK_SYMBOL_CUDA_LAUNCH_COOPERATIVE_PT "cudaLaunchCooperativeKernel_ptsz"
#define RK_SYMBOL_CUDA_GRAPH_LAUNCH_PT "cudaGraphLaunch_ptsz"
#define RK_SYMBOL_CUDA_MEMCPY_PT "cudaMemcpy_ptds"
#define RK_SYMBOL_CUDA_MEMCPY_ASYNC_PT "cudaMemcpyAsync_ptsz"
#define RK_SYMBOL_CUDA_MEMSET_ASYNC_PT "cudaMemsetAsync_ptsz"
#define RK_SYMBOL_CUDA_MALLOC_ASYNC_PT "cudaMallocAsync_ptsz"
#define RK_SYMBOL_CUDA_FREE_ASYNC_PT "cudaFreeAsync_ptsz"
#define RK_SYMBOL_CUDA_STREAM_SYNC_PT "cudaStreamSynchronize_ptsz"

#define RK_SYMBOL_CU_MODULE_LAUNCH "cuLaunchKernel"
#define RK_SYMBOL_CU_MODULE_LAUNCH_EX "cuLaunchKernelEx"
#define RK_SYMBOL_CU_MODULE_LAUNCH_COOPERATIVE "cuLaunchCooperativeKernel"
#define RK_SYMBOL_CU_GRAPH_LAUNCH "cuGraphLaunch"
#define RK_SYMBOL_CU_MODULE_LAUNCH_PT "cuLaunchKernel_ptsz"
#define RK_SYMBOL_CU_MODULE_LAUNCH_EX_PT "cuLaunchKernelEx_ptsz"
#define RK_SYMBOL_CU_MODULE_LAUNCH_COOPERATIVE_PT "cuLaunchCooperativeKernel_ptsz"
#define RK_SYMBOL_CU_GRAPH_LAUNCH_PT "cuGraphLaunch_ptsz"
#define RK_SYMBOL_CU_CONTEXT_DESTROY "cuCtxDestroy_v2"
#define RK_SYMBOL_CU_PRIMARY_RESET "cuDevicePrimaryCtxReset_v2"
#define RK_SYMBOL_CU_GET_ADDRESS "cuGetProcAddress"
#define RK_SYMBOL_CU_GET_ADDRESS_V2 "cuGetProcAddress_v2"

#define RK_SYMBOL_CUBLAS_SGEMM "cublasSgemm_v2"
#define RK_SYMBOL_CUBLAS_DGEMM "cublasDgemm_v2"
#define RK_SYMBOL_CUBLAS_HGEMM "cublasHgemm"
#define RK_SYMBOL_CUBLAS_SGEMM_BATCHED "cublasSgemmStridedBatched"
#define RK_SYMBOL_CUBLAS_GEMM_EX "cublasGemmEx"
#define RK_SYMBOL_CUBLAS_GEMM_BATCHED_EX "cublasGemmBatchedEx"
#define RK_SYMBOL_CUBLAS_GEMM_STRIDED_EX "cublasGemmStridedBatchedEx"

#define RK_SYMBOL_CUBLASLT_MATMUL "cublasLtMatmul"

#define RELKIT_CUDA_HOOKS(X)                                                                       \
    X(CUDA_LAUNCH, cuda, KERNEL, "launch", 0)                                                      \
    X(CUDA_LAUNCH_EX, cuda, KERNEL, "launch_ex", 0)                                                \
    X(CUDA_LAUNCH_COOPERATIVE, cuda, KERNEL, "launch_cooperative", 0)                              \
    X(CUDA_GRAPH_LAUNCH, cuda, KERNEL, "graph_launch", 0)                                          \
    X(CUDA_MEMCPY, cuda, MEMORY, "memcpy", 0)                                                      \
    X(CUDA_MEMCPY_ASYNC, cuda, MEMORY, "memcpy_async", 0)                                          \
    X(CUDA_MEMSET, cuda, MEMORY, "memset", 0)                                                      \
    X(CUDA_MEMSET_ASYNC, cuda, MEMORY, "memset_async", 0)                                          \
    X(CUDA_MALLOC, cuda, MEMORY, "malloc", 0)                                                      \
    X(CUDA_MALLOC_ASYNC, cuda, MEMORY, "malloc_async", 0)                                          \
    X(CUDA_MALLOC_FROM_POOL, cuda, MEMORY, "malloc_from_pool", 0)                                  \
    X(CUDA_FREE, cuda, MEMORY, "free", 0)                                                          \
    X(CUDA_FREE_ASYNC, cuda, MEMORY, "free_async", 0)                                              \
    X(CUDA_MALLOC_HOST, cuda, MEMORY, "malloc_host", 0)                                            \
    X(CUDA_HOST_ALLOC, cuda, MEMORY, "host_alloc", 0)                                              \
    X(CUDA_FREE_HOST, cuda, MEMORY, "free_host", 0)                                                \
    X(CUDA_STREAM_SYNC, cuda, WAIT, "stream_sync", 0)                                              \
    X(CUDA_EVENT_SYNC, cuda, WAIT, "event_sync", 0)                                                \
    X(CUDA_DEVICE_SYNC, cuda, WAIT, "device_sync", 0)                                              \
    X(CUDA_CAPTURE_BEGIN, cuda, INTERNAL, "capture_begin", 0)                                      \
    X(CUDA_CAPTURE_END, cuda, INTERNAL, "capture_end", 0)                                          \
    X(CUDA_DEVICE_RESET, cuda, INTERNAL, "device_reset", 0)                                        \
    X(CUDA_LAUNCH_PT, cuda, KERNEL, "launch", 0)                                                   \
    X(CUDA_LAUNCH_EX_PT, cuda, KERNEL, "launch_ex", 0)                                             \
    X(CUDA_LAUNCH_COOPERATIVE_PT, cuda, KERNEL, "launch_cooperative", 0)                           \
    X(CUDA_GRAPH_LAUNCH_PT, cuda, KERNEL, "graph_launch", 0)                                       \
    X(CUDA_MEMCPY_PT, cuda, MEMORY, "memcpy", 0)                                                   \
    X(CUDA_MEMCPY_ASYNC_PT, cuda, MEMORY, "memcpy_async", 0)                                       \
    X(CUDA_MEMSET_ASYNC_PT, cuda, MEMORY, "memset_async", 0)                                       \
    X(CUDA_MALLOC_ASYNC_PT, cuda, MEMORY, "malloc_async", 0)                                       \
    X(CUDA_FREE_ASYNC_PT, cuda, MEMORY, "free_async", 0)                                           \
    X(CUDA_STREAM_SYNC_PT, cuda, WAIT, "stream_sync", 0)

#define RELKIT_CU_HOOKS(X)                                                                         \
    X(CU_MODULE_LAUNCH, cuda, KERNEL, "launch", 0)                                                 \
    X(CU_MODULE_LAUNCH_EX, cuda, KERNEL, "launch_ex", 0)                                           \
    X(CU_MODULE_LAUNCH_COOPERATIVE, cuda, KERNEL, "launch_cooperative", 0)                         \
    X(CU_GRAPH_LAUNCH, cuda, KERNEL, "graph_launch", 0)                                            \
    X(CU_MODULE_LAUNCH_PT, cuda, KERNEL, "launch", 0)                                              \
    X(CU_MODULE_LAUNCH_EX_PT, cuda, KERNEL, "launch_ex", 0)                                        \
    X(CU_MODULE_LAUNCH_COOPERATIVE_PT, cuda, KERNEL, "launch_cooperative", 0)                      \
    X(CU_GRAPH_LAUNCH_PT, cuda, KERNEL, "graph_launch", 0)                                         \
    X(CU_CONTEXT_DESTROY, cuda, INTERNAL, "context_destroy", 0)                                    \
    X(CU_PRIMARY_RESET, cuda, INTERNAL, "primary_reset", 0)                                        \
    X(CU_GET_ADDRESS, cuda, INTERNAL, "get_address", 0)                                            \
    X(CU_GET_ADDRESS_V2, cuda, INTERNAL, "get_address", 0)

#define RELKIT_CUBLAS_HOOKS(X)                                                                     \
    X(CUBLAS_SGEMM, cuda, GEMM, "sgemm", 0)                                                        \
    X(CUBLAS_DGEMM, cuda, GEMM, "dgemm", 0)                                                        \
    X(CUBLAS_HGEMM, cuda, GEMM, "hgemm", 0)                                                        \
    X(CUBLAS_SGEMM_BATCHED, cuda, GEMM, "sgemm_batch", 0)                                          \
    X(CUBLAS_GEMM_EX, cuda, GEMM, "gemm", 0)                                                       \
    X(CUBLAS_GEMM_BATCHED_EX, cuda, GEMM, "gemm_batch", 0)                                         \
    X(CUBLAS_GEMM_STRIDED_EX, cuda, GEMM, "gemm_strided_batch", 0)

#define RELKIT_CUBLASLT_HOOKS(X) X(CUBLASLT_MATMUL, cuda, GEMM, "matmul", 0)

/* First and last row of each library, for platforms.c. */
#ifndef RELKIT_SYMBOLS_ONLY
#define RK_HOOK_CUDA_FIRST RK_HOOK_CUDA_LAUNCH
#define RK_HOOK_CUDA_LAST RK_HOOK_CUDA_STREAM_SYNC_PT
#define RK_HOOK_CU_FIRST RK_HOOK_CU_MODULE_LAUNCH
#define RK_HOOK_CU_LAST RK_HOOK_CU_GET_ADDRESS_V2
#define RK_HOOK_CUBLAS_FIRST RK_HOOK_CUBLAS_SGEMM
#define RK_HOOK_CUBLAS_LAST RK_HOOK_CUBLAS_GEMM_STRIDED_EX
#define RK_HOOK_CUBLASLT_FIRST RK_HOOK_CUBLASLT_MATMUL
#define RK_HOOK_CUBLASLT_LAST RK_HOOK_CUBLASLT_MATMUL
#endif

#endif
