/* Test double: BLAS. Products take SIM_LENGTH_PRODUCT and compute nothing. */
#define _GNU_SOURCE
#include "blas_api.h"

#include <stdlib.h>

#include "below.h"
#include "sim.h"

#pragma GCC visibility push(default)

struct handle {
    void *stream;
};

int BLAS_V2(Create)(void **handle)
{
    *handle = calloc(1, sizeof(struct handle));
    return *handle != NULL ? SIM_OK : 3;
}

int BLAS_V2(Destroy)(void *handle)
{
    free(handle);
    return SIM_OK;
}

int BLAS_V2(SetStream)(void *handle, void *stream)
{
    ((struct handle *)handle)->stream = stream;
    return SIM_OK;
}

int BLAS_V2(GetStream)(void *handle, void **stream)
{
    *stream = ((struct handle *)handle)->stream;
    return SIM_OK;
}

static int product(void *handle, const char *label)
{
    uint64_t length_ns = sim_length(SIM_LENGTH_PRODUCT);
    void *arguments[] = {&length_ns};
    sim_label(label);
    int error = sim_below_launch(((struct handle *)handle)->stream, arguments);
    sim_label(NULL);
    return error == SIM_OK ? 0 : 13; /* execution failed */
}

int BLAS_V2(Sgemm)(void *handle, int ta, int tb, int m, int n, int k, const float *alpha,
                   const float *a, int lda, const float *b, int ldb, const float *beta, float *c,
                   int ldc)
{
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)lda, (void)b;
    (void)ldb, (void)beta, (void)c, (void)ldc;
    return product(handle, "sgemm");
}

int BLAS_V2(Dgemm)(void *handle, int ta, int tb, int m, int n, int k, const double *alpha,
                   const double *a, int lda, const double *b, int ldb, const double *beta,
                   double *c, int ldc)
{
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)lda, (void)b;
    (void)ldb, (void)beta, (void)c, (void)ldc;
    return product(handle, "dgemm");
}

int BLAS(SgemmStridedBatched)(void *handle, int ta, int tb, int m, int n, int k, const float *alpha,
                              const float *a, int lda, long long stride_a, const float *b, int ldb,
                              long long stride_b, const float *beta, float *c, int ldc,
                              long long stride_c, int count)
{
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)lda, (void)b;
    (void)ldb, (void)beta, (void)c, (void)ldc, (void)stride_a, (void)stride_b, (void)stride_c;
    (void)count;
    return product(handle, "sgemm_batch");
}

int BLAS(GemmEx)(void *handle, int ta, int tb, int m, int n, int k, const void *alpha,
                 const void *a, int type_a, int lda, const void *b, int type_b, int ldb,
                 const void *beta, void *c, int type_c, int ldc, int compute, int algorithm)
{
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)lda, (void)b;
    (void)ldb, (void)beta, (void)c, (void)ldc, (void)type_a, (void)type_b, (void)type_c;
    (void)compute, (void)algorithm;
    return product(handle, "gemm");
}

int BLAS(GemmStridedBatchedEx)(void *handle, int ta, int tb, int m, int n, int k, const void *alpha,
                               const void *a, int type_a, int lda, long long stride_a,
                               const void *b, int type_b, int ldb, long long stride_b,
                               const void *beta, void *c, int type_c, int ldc, long long stride_c,
                               int count, int compute, int algorithm)
{
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)lda, (void)b;
    (void)ldb, (void)beta, (void)c, (void)ldc, (void)type_a, (void)type_b, (void)type_c;
    (void)stride_a, (void)stride_b, (void)stride_c, (void)count, (void)compute, (void)algorithm;
    return product(handle, "gemm_strided_batch");
}
