#include "gemm_shape.h"

#include <stddef.h>
#include <string.h>

#include "loader/loaded.h"

/* "Not transposed", of cuBLAS and of hipBLAS. */
enum { OPERATION_NONE = 0, OPERATION_NONE_HIP = 111 };

typedef int (*stream_query)(void *handle, void **stream);
typedef int (*attribute_query)(void *object, int attribute, void *value, size_t bytes,
                               size_t *written);

/* By cudaDataType. */
static const uint8_t type_bytes[] = {4, 8, 2, 1, 8, 16, 4, 2, 1,  2, 4,  8, 4, 8, 2, 4, 1,
                                     1, 1, 1, 2, 4, 2,  4, 8, 16, 8, 16, 1, 1, 1, 1, 1, 1};

uint64_t rk_gemm_type_bytes(int type)
{
    return type >= 0 && (size_t)type < sizeof type_bytes ? type_bytes[type] : 0;
}

static uintptr_t query_of(_Atomic uintptr_t *known, const char *library, const char *name)
{
    uintptr_t function = atomic_load_explicit(known, memory_order_acquire);
    if (function == 0) {
        void *handle = rk_loaded_library(library);
        function = handle != NULL ? (uintptr_t)rk_dlsym(handle, name) : 0;
        atomic_store_explicit(known, function, memory_order_release);
    }
    return function;
}

void *rk_gemm_stream(struct rk_gemm_queries *queries, void *handle)
{
    stream_query query =
        (stream_query)query_of(&queries->stream, queries->library, queries->get_stream);
    void *stream = NULL;
    return query != NULL && query(handle, &stream) == 0 ? stream : NULL;
}

static bool attribute(attribute_query query, void *object, int which, void *value, size_t bytes)
{
    size_t written = 0;
    return query != NULL && object != NULL && query(object, which, value, bytes, &written) == 0;
}

struct rk_gemm_shape rk_gemm_lt_shape(struct rk_gemm_queries *queries, void *description,
                                      void *layout_a, void *layout_d)
{
    struct rk_gemm_shape shape = {0, 0};
    attribute_query layout =
        (attribute_query)query_of(&queries->layout, queries->lt_library, queries->layout_attribute);
    attribute_query described = (attribute_query)query_of(
        &queries->description, queries->lt_library, queries->description_attribute);
    uint64_t m = 0, n = 0, rows = 0, columns = 0;
    uint32_t type_a = 0, type_d = 0;
    int32_t transpose = OPERATION_NONE, batch = 1;
    if (!attribute(layout, layout_d, queries->attributes.rows, &m, sizeof m) ||
        !attribute(layout, layout_d, queries->attributes.columns, &n, sizeof n) ||
        !attribute(layout, layout_a, queries->attributes.rows, &rows, sizeof rows) ||
        !attribute(layout, layout_a, queries->attributes.columns, &columns, sizeof columns))
        return shape;
    attribute(layout, layout_a, queries->attributes.type, &type_a, sizeof type_a);
    attribute(layout, layout_d, queries->attributes.type, &type_d, sizeof type_d);
    if (!attribute(layout, layout_d, queries->attributes.batch, &batch, sizeof batch) || batch < 1)
        batch = 1;
    attribute(described, description, queries->attributes.transpose_a, &transpose,
              sizeof transpose);
    bool plain = transpose == OPERATION_NONE || transpose == OPERATION_NONE_HIP;
    uint64_t k = plain ? columns : rows;
    shape.flops = 2 * m * n * k * (uint64_t)batch;
    shape.size_bytes = (uint64_t)batch * ((m + n) * k * rk_gemm_type_bytes((int)type_a) +
                                          m * n * rk_gemm_type_bytes((int)type_d));
    return shape;
}
