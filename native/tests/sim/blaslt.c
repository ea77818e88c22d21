/* Test double: BLASLt, whose shapes are in layouts that only its own queries open. */
#define _GNU_SOURCE
#include "blas_api.h"

#include <stdlib.h>
#include <string.h>

#include "below.h"
#include "sim.h"

#pragma GCC visibility push(default)

struct layout {
    uint32_t type;
    int32_t batch;
    uint64_t rows, columns;
};

struct description {
    int32_t transpose_a;
};

int BLASLT(Create)(void **handle)
{
    *handle = calloc(1, 1);
    return *handle != NULL ? SIM_OK : 3;
}

int BLASLT(Destroy)(void *handle)
{
    free(handle);
    return SIM_OK;
}

int BLASLT(MatrixLayoutCreate)(void **layout, int type, uint64_t rows, uint64_t columns, int64_t ld)
{
    (void)ld;
    struct layout *made = calloc(1, sizeof *made);
    if (made == NULL)
        return 3;
    *made = (struct layout){(uint32_t)type, 1, rows, columns};
    *layout = made;
    return SIM_OK;
}

int BLASLT(MatrixLayoutDestroy)(void *layout)
{
    free(layout);
    return SIM_OK;
}

/* Where an attribute is, NULL where it is not simulated. */
static void *layout_part(struct layout *layout, int attribute, size_t *bytes)
{
    switch (attribute) {
    case LT_TYPE:
        *bytes = sizeof layout->type;
        return &layout->type;
    case LT_ROWS:
        *bytes = sizeof layout->rows;
        return &layout->rows;
    case LT_COLUMNS:
        *bytes = sizeof layout->columns;
        return &layout->columns;
    case LT_BATCH:
        *bytes = sizeof layout->batch;
        return &layout->batch;
    default:
        return NULL;
    }
}

int BLASLT(MatrixLayoutSetAttribute)(void *layout, int attribute, const void *value, size_t bytes)
{
    size_t size = 0;
    void *part = layout_part(layout, attribute, &size);
    if (part == NULL || bytes != size)
        return 7; /* invalid value */
    memcpy(part, value, size);
    return SIM_OK;
}

int BLASLT(MatrixLayoutGetAttribute)(void *layout, int attribute, void *value, size_t bytes,
                                     size_t *written)
{
    size_t size = 0;
    void *part = layout_part(layout, attribute, &size);
    if (part == NULL || bytes != size)
        return 7;
    memcpy(value, part, size);
    if (written != NULL)
        *written = size;
    return SIM_OK;
}

int BLASLT(MatmulDescCreate)(void **description, int compute, int scale)
{
    (void)compute, (void)scale;
    struct description *made = calloc(1, sizeof *made);
    if (made == NULL)
        return 3;
    made->transpose_a = OP_N;
    *description = made;
    return SIM_OK;
}

int BLASLT(MatmulDescDestroy)(void *description)
{
    free(description);
    return SIM_OK;
}

int BLASLT(MatmulDescSetAttribute)(void *description, int attribute, const void *value,
                                   size_t bytes)
{
    if (attribute != LT_TRANSPOSE_A || bytes != sizeof(int32_t))
        return 7;
    memcpy(&((struct description *)description)->transpose_a, value, bytes);
    return SIM_OK;
}

int BLASLT(MatmulDescGetAttribute)(void *description, int attribute, void *value, size_t bytes,
                                   size_t *written)
{
    if (attribute != LT_TRANSPOSE_A || bytes != sizeof(int32_t))
        return 7;
    memcpy(value, &((struct description *)description)->transpose_a, bytes);
    if (written != NULL)
        *written = bytes;
    return SIM_OK;
}

int BLASLT(Matmul)(void *handle, void *description, const void *alpha, const void *a,
                   void *layout_a, const void *b, void *layout_b, const void *beta, const void *c,
                   void *layout_c, void *d, void *layout_d, const void *algorithm, void *workspace,
                   size_t bytes, void *stream)
{
    (void)handle, (void)description, (void)alpha, (void)a, (void)layout_a, (void)b, (void)layout_b;
    (void)beta, (void)c, (void)layout_c, (void)d, (void)layout_d, (void)algorithm, (void)workspace;
    (void)bytes;
    uint64_t length_ns = sim_length(SIM_LENGTH_PRODUCT);
    void *arguments[] = {&length_ns};
    sim_label("matmul");
    int error = sim_below_launch(stream, arguments);
    sim_label(NULL);
    return error == SIM_OK ? 0 : 13;
}
