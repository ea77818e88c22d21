/* A stand-in for libtorch_cpu.so: the hooked symbols with bodies that do what a test asks, called
 * through the PLT as PyTorch's own calls are. Compiled as libtorch_cpu.so by the tests. */
#define _GNU_SOURCE
#include "../src/table/table.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default"), noinline))

struct context {
    int32_t rank, size, base, padding;
};

/* gloo::AllreduceOptions, as far as the hook looks into it */
struct allreduce_options {
    struct context *context;
    void *context_owner;
    int64_t timeout_ms;
    int32_t algorithm, padding;
    void *in[3];
    void *out[3];
    uint64_t elements, element_size;
    void *reduce[4];
    uint32_t tag, padding2;
    uint64_t max_segment;
};

_Static_assert(sizeof(struct allreduce_options) == 144, "as in gloo");

/* What the fake collective does inside: called with the user's pointer. */
__attribute__((visibility("default"))) void (*fake_body)(void *);
__attribute__((visibility("default"))) void *fake_argument;

EXPORT void fake_allreduce(void *options) __asm__(RK_SYMBOL_GLOO_ALLREDUCE);
EXPORT void fake_allreduce(void *options)
{
    (void)options;
    if (fake_body != NULL)
        fake_body(fake_argument);
}

EXPORT void sgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k,
                   const float *alpha, const float *a, const int *lda, const float *b,
                   const int *ldb, const float *beta, float *c, const int *ldc, size_t la,
                   size_t lb)
{
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)lda, (void)b;
    (void)ldb, (void)beta, (void)ldc, (void)la, (void)lb;
    *c += 1;
}

static void reduce_once(struct context *context, uint32_t tag, uint64_t elements)
{
    struct allreduce_options options = {.context = context,
                                        .timeout_ms = 1800000,
                                        .elements = elements,
                                        .element_size = 4,
                                        .tag = tag,
                                        .max_segment = 1 << 20};
    fake_allreduce(&options);
}

/* `count` allreduces of `elements` floats, tags from `tag` on, as rank of a group of size. */
EXPORT void fake_collectives(int rank, int size, uint32_t tag, uint64_t elements, long count)
{
    struct context context = {rank, size, 2, 0};
    for (long i = 0; i < count; i++)
        reduce_once(&context, tag + (uint32_t)i, elements);
}

/* `count` products that claim to be of two matrices of `side`; returns ns for one, loop included. */
static double products(long count, int side)
{
    float one = 1, values[4] = {0, 0, 0, 0};
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (long i = 0; i < count; i++)
        sgemm_("N", "N", &side, &side, &side, &one, values, &side, values, &side, &one, values,
               &side, 1, 1);
    clock_gettime(CLOCK_MONOTONIC, &to);
    return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) /
           (double)count;
}

/* Large ones, which the hook times, and small ones, which it only counts. */
EXPORT double fake_gemms(long count)
{
    return products(count, 512);
}

EXPORT double fake_small_gemms(long count)
{
    return products(count, 64);
}

/* The same for allreduces. */
EXPORT double fake_collective_ns(long count)
{
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    fake_collectives(0, 2, 0, 16, count);
    clock_gettime(CLOCK_MONOTONIC, &to);
    return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) /
           (double)count;
}
