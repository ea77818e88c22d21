/* What a matrix product is of, by public queries of the vendor's BLAS. */
#ifndef RELKIT_HOOKS_GEMM_SHAPE_H
#define RELKIT_HOOKS_GEMM_SHAPE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct rk_gemm_shape {
    uint64_t flops, size_bytes;
};

/* Bytes of an element of a cudaDataType (HIP and MACA number theirs alike); 0 where unknown. */
uint64_t rk_gemm_type_bytes(int type);

/* Where a vendor's queries are; looked up in the library that is loaded. */
struct rk_gemm_queries {
    const char *library, *get_stream;
    const char *lt_library, *layout_attribute, *description_attribute;
    struct {
        int type, rows, columns, batch; /* of a layout */
        int transpose_a;                /* of a description */
    } attributes;
    _Atomic uintptr_t stream, layout, description;
};

/* The stream of a BLAS handle, NULL (the default stream) where it does not say. */
void *rk_gemm_stream(struct rk_gemm_queries *queries, void *handle);

/* By the layouts of A and D and whether A is transposed. */
struct rk_gemm_shape rk_gemm_lt_shape(struct rk_gemm_queries *queries, void *description,
                                      void *layout_a, void *layout_d);

#endif
