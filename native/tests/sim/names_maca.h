/* Test double: MACA's names, see names_cuda.h. */
#define RT(name) mc##name
#define RT_HOST_ALLOC mcHostAlloc
#define RT_HOST_FREE mcFreeHost
#define GRAPH_TAIL , void *node, char *log, size_t bytes
#define GRAPH_TAIL_UNUSED (void)node, (void)log, (void)bytes
#define BLAS(name) mcblas##name
#define BLAS_V2(name) mcblas##name
#define BLASLT(name) mcblasLt##name
#define CCL(name) mccl##name
#define CCL_LIBRARY "mccl"
#define LT_TYPE 0
#define LT_ROWS 2
#define LT_COLUMNS 3
#define LT_BATCH 5
#define LT_TRANSPOSE_A 3
#define OP_N 0
#define OP_T 1
