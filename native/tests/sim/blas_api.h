/* Test double: the part of the vendors' BLAS and BLASLt that is simulated, as published. */
#ifndef SIM_BLAS_API_H
#define SIM_BLAS_API_H

#include <stddef.h>
#include <stdint.h>

#include "names.h"

/* cudaDataType, which the others number alike */
enum { BLAS_R_32F = 0, BLAS_R_64F = 1, BLAS_R_16F = 2, BLAS_R_16BF = 14 };

int BLAS_V2(Create)(void **handle);
int BLAS_V2(Destroy)(void *handle);
int BLAS_V2(SetStream)(void *handle, void *stream);
int BLAS_V2(GetStream)(void *handle, void **stream);
int BLAS_V2(Sgemm)(void *handle, int ta, int tb, int m, int n, int k, const float *alpha,
                   const float *a, int lda, const float *b, int ldb, const float *beta, float *c,
                   int ldc);
int BLAS_V2(Dgemm)(void *handle, int ta, int tb, int m, int n, int k, const double *alpha,
                   const double *a, int lda, const double *b, int ldb, const double *beta,
                   double *c, int ldc);
int BLAS(SgemmStridedBatched)(void *handle, int ta, int tb, int m, int n, int k, const float *alpha,
                              const float *a, int lda, long long stride_a, const float *b, int ldb,
                              long long stride_b, const float *beta, float *c, int ldc,
                              long long stride_c, int count);
int BLAS(GemmEx)(void *handle, int ta, int tb, int m, int n, int k, const void *alpha,
                 const void *a, int type_a, int lda, const void *b, int type_b, int ldb,
                 const void *beta, void *c, int type_c, int ldc, int compute, int algorithm);
int BLAS(GemmStridedBatchedEx)(void *handle, int ta, int tb, int m, int n, int k, const void *alpha,
                               const void *a, int type_a, int lda, long long stride_a,
                               const void *b, int type_b, int ldb, long long stride_b,
                               const void *beta, void *c, int type_c, int ldc, long long stride_c,
                               int count, int compute, int algorithm);

int BLASLT(Create)(void **handle);
int BLASLT(Destroy)(void *handle);
int BLASLT(MatrixLayoutCreate)(void **layout, int type, uint64_t rows, uint64_t columns,
                               int64_t ld);
int BLASLT(MatrixLayoutDestroy)(void *layout);
int BLASLT(MatrixLayoutSetAttribute)(void *layout, int attribute, const void *value, size_t bytes);
int BLASLT(MatrixLayoutGetAttribute)(void *layout, int attribute, void *value, size_t bytes,
                                     size_t *written);
int BLASLT(MatmulDescCreate)(void **description, int compute, int scale);
int BLASLT(MatmulDescDestroy)(void *description);
int BLASLT(MatmulDescSetAttribute)(void *description, int attribute, const void *value,
                                   size_t bytes);
int BLASLT(MatmulDescGetAttribute)(void *description, int attribute, void *value, size_t bytes,
                                   size_t *written);
int BLASLT(Matmul)(void *handle, void *description, const void *alpha, const void *a,
                   void *layout_a, const void *b, void *layout_b, const void *beta, const void *c,
                   void *layout_c, void *d, void *layout_d, const void *algorithm, void *workspace,
                   size_t bytes, void *stream);

#endif
