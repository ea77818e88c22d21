/* Matrix products of the vendors' BLAS, as cuBLAS has them. No include guard, see device_hook.h.
 * VENDOR_STREAM(handle) is the stream that the handle works on. */

#define PRODUCT(m, n, k, count)                                                                    \
    (2 * (uint64_t)(m) * (uint64_t)(n) * (uint64_t)(k) * (uint64_t)(count))
#define BYTES(m, n, k, count, in, out)                                                             \
    ((uint64_t)(count) * (((uint64_t)(m) + (uint64_t)(n)) * (uint64_t)(k) * (in) +                 \
                          (uint64_t)(m) * (uint64_t)(n) * (out)))

#define PLAIN_GEMM(row, bytes)                                                                     \
    ENQUEUE(row, RK_SERIES_GEMM,                                                                   \
            (void *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,  \
             int lda, const void *b, int ldb, const void *beta, void *c, int ldc),                 \
            (handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc), VENDOR_STREAM(handle), \
            BYTES(m, n, k, 1, bytes, bytes), PRODUCT(m, n, k, 1))

PLAIN_GEMM(SGEMM, 4)
PLAIN_GEMM(DGEMM, 8)
PLAIN_GEMM(HGEMM, 2)

ENQUEUE(SGEMM_BATCHED, RK_SERIES_GEMM,
        (void *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,
         int lda, long long stride_a, const void *b, int ldb, long long stride_b, const void *beta,
         void *c, int ldc, long long stride_c, int count),
        (handle, ta, tb, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc, stride_c,
         count),
        VENDOR_STREAM(handle), BYTES(m, n, k, count, 4, 4), PRODUCT(m, n, k, count))

ENQUEUE(GEMM_EX, RK_SERIES_GEMM,
        (void *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,
         int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c,
         int type_c, int ldc, int compute, int algorithm),
        (handle, ta, tb, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc,
         compute, algorithm),
        VENDOR_STREAM(handle),
        BYTES(m, n, k, 1, rk_gemm_type_bytes(type_a), rk_gemm_type_bytes(type_c)),
        PRODUCT(m, n, k, 1))

ENQUEUE(GEMM_BATCHED_EX, RK_SERIES_GEMM,
        (void *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void **a,
         int type_a, int lda, const void **b, int type_b, int ldb, const void *beta, void **c,
         int type_c, int ldc, int count, int compute, int algorithm),
        (handle, ta, tb, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc,
         count, compute, algorithm),
        VENDOR_STREAM(handle),
        BYTES(m, n, k, count, rk_gemm_type_bytes(type_a), rk_gemm_type_bytes(type_c)),
        PRODUCT(m, n, k, count))

ENQUEUE(GEMM_STRIDED_EX, RK_SERIES_GEMM,
        (void *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,
         int type_a, int lda, long long stride_a, const void *b, int type_b, int ldb,
         long long stride_b, const void *beta, void *c, int type_c, int ldc, long long stride_c,
         int count, int compute, int algorithm),
        (handle, ta, tb, m, n, k, alpha, a, type_a, lda, stride_a, b, type_b, ldb, stride_b, beta,
         c, type_c, ldc, stride_c, count, compute, algorithm),
        VENDOR_STREAM(handle),
        BYTES(m, n, k, count, rk_gemm_type_bytes(type_a), rk_gemm_type_bytes(type_c)),
        PRODUCT(m, n, k, count))
