/* Test double: HIP's names, see names_cuda.h. RCCL has NCCL's. */
#define RT(name) hip##name
#define RT_HOST_ALLOC hipHostMalloc
#define RT_HOST_FREE hipHostFree
#define RT_PER_THREAD(name) hip##name##_spt
#define GRAPH_TAIL , void *node, char *log, size_t bytes
#define GRAPH_TAIL_UNUSED (void)node, (void)log, (void)bytes
#define BLAS(name) hipblas##name
#define BLAS_V2(name) hipblas##name
#define BLASLT(name) hipblasLt##name
#define CCL(name) nccl##name
#define CCL_LIBRARY "rccl"
#define LT_TYPE 2
#define LT_ROWS 4
#define LT_COLUMNS 5
#define LT_BATCH 0
#define LT_TRANSPOSE_A 0
#define OP_N 111
#define OP_T 112
