/* Matrix products. fp32 and fp64 matmul, Linear and bmm of CPU PyTorch end here; oneDNN is linked
 * into PyTorch with hidden symbols and cannot be seen. */
#include "hook.h"

/* Recording a product costs some 70 ns, most of it the clock. One below this size is over in some
 * 40 us, attention has hundreds of those a step, and nobody looks at a single one: they are only
 * counted. So the hook stays below 0.3 % of the time however small the products are. */
#define WORTH_TIMING_FLOPS (UINT64_C(1) << 22)

static void begin(struct rk_scope *scope, enum rk_hook_id hook, uint64_t m, uint64_t n, uint64_t k,
                  uint64_t in_bytes, uint64_t out_bytes, unsigned flops_each)
{
    if (scope->slot == NULL)
        return;
    scope->op.hook = (uint16_t)hook;
    scope->op.size_bytes = (m * k + k * n) * in_bytes + m * n * out_bytes;
    scope->op.flops = m * n * k * flops_each;
    if (scope->op.flops < WORTH_TIMING_FLOPS)
        rk_count(scope);
    else
        rk_begin(scope);
}

/* The last two are the lengths of the two strings, which Fortran compilers append and some BLAS
 * libraries read; where the caller is C they are whatever lies there, and nobody looks. */
typedef void (*fortran_gemm)(const char *, const char *, const int *, const int *, const int *,
                             const void *, const void *, const int *, const void *, const int *,
                             const void *, void *, const int *, size_t, size_t);

#define FORTRAN_GEMM(id, function, element_bytes, flops_each)                                      \
    HOOK(id, void, function,                                                                       \
         (const char *transpose_a, const char *transpose_b, const int *m, const int *n,            \
          const int *k, const void *alpha, const void *a, const int *lda, const void *b,           \
          const int *ldb, const void *beta, void *c, const int *ldc, size_t length_a,              \
          size_t length_b))                                                                        \
    {                                                                                              \
        fortran_gemm original = ORIGINAL(id, fortran_gemm);                                        \
        RK_SCOPE(scope);                                                                           \
        begin(&scope, RK_HOOK_##id, (uint64_t)*m, (uint64_t)*n, (uint64_t)*k, element_bytes,       \
              element_bytes, flops_each);                                                          \
        original(transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, length_a, \
                 length_b);                                                                        \
        scope.returned = true;                                                                     \
    }

FORTRAN_GEMM(MKL_SGEMM, hook_sgemm, 4, 2)
FORTRAN_GEMM(MKL_DGEMM, hook_dgemm, 8, 2)
FORTRAN_GEMM(MKL_CGEMM, hook_cgemm, 8, 8)
FORTRAN_GEMM(MKL_ZGEMM, hook_zgemm, 16, 8)

typedef void (*batch_gemm)(int, const int *, const int *, const int *, const int *, const int *,
                           const void *, const void **, const int *, const void **, const int *,
                           const void *, void **, const int *, int, const int *);

/* Products in groups of equal shape; the shape of the first group stands for all. */
#define BATCH_GEMM(id, function, element_bytes)                                                    \
    HOOK(id, void, function,                                                                       \
         (int layout, const int *transpose_a, const int *transpose_b, const int *m, const int *n,  \
          const int *k, const void *alpha, const void **a, const int *lda, const void **b,         \
          const int *ldb, const void *beta, void **c, const int *ldc, int groups,                  \
          const int *group_size))                                                                  \
    {                                                                                              \
        batch_gemm original = ORIGINAL(id, batch_gemm);                                            \
        RK_SCOPE(scope);                                                                           \
        if (scope.slot != NULL) {                                                                  \
            uint64_t products = 0;                                                                 \
            for (int i = 0; i < groups; i++)                                                       \
                products += (uint64_t)group_size[i];                                               \
            begin(&scope, RK_HOOK_##id, groups > 0 ? (uint64_t)*m * products : 0,                  \
                  groups > 0 ? (uint64_t)*n : 0, groups > 0 ? (uint64_t)*k : 0, element_bytes,     \
                  element_bytes, 2);                                                               \
        }                                                                                          \
        original(layout, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc,   \
                 groups, group_size);                                                              \
        scope.returned = true;                                                                     \
    }

BATCH_GEMM(MKL_SGEMM_BATCH, hook_sgemm_batch, 4)
BATCH_GEMM(MKL_DGEMM_BATCH, hook_dgemm_batch, 8)

typedef void (*packed_gemm)(int, int, int, int, int, int, const float *, int, const float *, int,
                            float, float *, int);

HOOK(MKL_SGEMM_COMPUTE, void, hook_sgemm_compute,
     (int layout, int transpose_a, int transpose_b, int m, int n, int k, const float *a, int lda,
      const float *b, int ldb, float beta, float *c, int ldc))
{
    packed_gemm original = ORIGINAL(MKL_SGEMM_COMPUTE, packed_gemm);
    RK_SCOPE(scope);
    begin(&scope, RK_HOOK_MKL_SGEMM_COMPUTE, (uint64_t)m, (uint64_t)n, (uint64_t)k, 4, 4, 2);
    original(layout, transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc);
    scope.returned = true;
}

typedef void (*half_gemm)(int, int, int, int, int, int, float, const void *, int, const void *, int,
                          float, float *, int);

#define HALF_GEMM(id, function)                                                                    \
    HOOK(id, void, function,                                                                       \
         (int layout, int transpose_a, int transpose_b, int m, int n, int k, float alpha,          \
          const void *a, int lda, const void *b, int ldb, float beta, float *c, int ldc))          \
    {                                                                                              \
        half_gemm original = ORIGINAL(id, half_gemm);                                              \
        RK_SCOPE(scope);                                                                           \
        begin(&scope, RK_HOOK_##id, (uint64_t)m, (uint64_t)n, (uint64_t)k, 2, 4, 2);               \
        original(layout, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);  \
        scope.returned = true;                                                                     \
    }

HALF_GEMM(MKL_GEMM_BF16, hook_gemm_bf16)
HALF_GEMM(MKL_GEMM_F16, hook_gemm_f16)
