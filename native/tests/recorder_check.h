/* What the tests of the recorder share: a check that says where it failed, and operations whose fields
 * all come from one number. Include it once in a program. */
#ifndef RELKIT_RECORDER_CHECK_H
#define RELKIT_RECORDER_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/recorder.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: not true: %s\n", __FILE__, __LINE__, __func__,             \
                    #condition);                                                                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static const char *directory;

static const struct rk_hook hooks[] = {
    {.kind = RK_COLLECTIVE, .required = 1, .name = "allreduce", .platform = "test", .symbol = "a"},
    {.kind = RK_GEMM, .required = 1, .name = "sgemm", .platform = "test", .symbol = "b"},
};

static inline struct rk_header *start(void)
{
    struct rk_header *header = rk_state_file_create(directory, hooks, 2);
    CHECK(header != NULL);
    header->rank = header->local_rank = header->world_size = -1;
    rk_recorder_start(header);
    return header;
}

static inline void record(uint64_t number, bool fails)
{
    RK_SCOPE(scope);
    if (scope.slot == NULL)
        return;
    scope.op.seq = (int64_t)number;
    scope.op.size_bytes = number * 3;
    scope.op.flops = number * 7;
    scope.op.hook = number % 2;
    rk_begin(&scope);
    scope.returned = !fails;
}

static inline struct rk_op copy_of(const rk_op_words *from)
{
    uint64_t words[RK_OP_WORDS];
    struct rk_op op;
    for (int i = 0; i < RK_OP_WORDS; i++)
        words[i] = atomic_load_explicit(&from->word[i], memory_order_acquire);
    memcpy(&op, words, sizeof op);
    return op;
}

/* What a reader may believe: every field of an operation comes from the same number. */
static inline void check_whole(const struct rk_op *op)
{
    CHECK(op->seq >= 0 && op->size_bytes == (uint64_t)op->seq * 3);
    CHECK(op->flops == (uint64_t)op->seq * 7 && op->hook == op->seq % 2);
    CHECK(op->start_ns != 0);
}

#endif
