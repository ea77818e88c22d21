/* Test double: CUDA's names for what runtime.c, blas.c and collectives.c define. */
#define RT(name) cuda##name
#define RT_HOST_ALLOC cudaHostAlloc
#define RT_HOST_FREE cudaFreeHost
#define RT_PER_THREAD(name) cuda##name##_ptsz
#define GRAPH_TAIL , unsigned long long flags
#define GRAPH_TAIL_UNUSED (void)flags
#define BLAS(name) cublas##name
#define BLAS_V2(name) cublas##name##_v2
#define BLASLT(name) cublasLt##name
#define CCL(name) nccl##name
#define CCL_LIBRARY "nccl"
/* Of a layout: type, rows, columns, batch; of a description: whether A is transposed. */
#define LT_TYPE 0
#define LT_ROWS 2
#define LT_COLUMNS 3
#define LT_BATCH 5
#define LT_TRANSPOSE_A 3
#define OP_N 0
#define OP_T 1
