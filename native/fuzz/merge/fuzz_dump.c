/* libFuzzer target: any bytes as a dump file. Besides the sanitizers' findings it holds the reader
 * to its own promises: reading twice gives the same answer, whether the stacks are parsed or
 * recognised, and a refused file leaves no trace in the tallies. */
#include <stdlib.h>

#include "merge/merge.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

/* A stack is there with all of its frames; where memory runs out, that is said. */
static void check_stack(struct merge_context *context, uint32_t stack)
{
    const uint32_t *frames;
    uint32_t count;
    uint32_t bytes;
    if (stack == UINT32_MAX) {
        return;
    }
    int32_t status = rkm_stack(context, stack, &frames, &count);
    require(status == MERGE_OK || status == MERGE_OUT_OF_MEMORY);
    for (uint32_t i = 0; i < count; i++) {
        require(rkm_bytes(context, RKM_FRAMES, frames[i], &bytes) != NULL);
    }
}

static uint64_t threads(struct merge_context *context)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < rkm_item_count(context); i++) {
        struct rkm_item item;
        rkm_item(context, i, &item);
        require(item.interval_count > 0);
        for (uint64_t k = 0; k < item.interval_count; k++) {
            require(item.intervals[2 * k] >= 0);
            require(item.intervals[2 * k] <= item.intervals[2 * k + 1]);
        }
        uint8_t bits[64] = {0};
        rkm_pack(item.intervals, item.interval_count, bits, sizeof bits);
        if (item.kind == TALLY_THREAD) {
            check_stack(context, item.first);
            check_stack(context, item.second);
        } else {
            uint32_t bytes;
            require(rkm_bytes(context, RKM_TEXTS, item.first, &bytes) != NULL);
        }
        sum += item.threads;
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *name = "00003-00008.stacktrace";
#ifdef RELKIT_PLANTED_DEFECT
    /* For the test that this fuzzer finds what there is to find. */
    if (size > 8 && data[0] == 0x18 && data[size] == 7) {
        return 1;
    }
#endif
    struct merge_context *context = rkm_new(8 << 20);
    struct merge_head first;
    struct merge_head second;
    if (context == NULL) {
        return 0;
    }
    rkm_add(context, data, size, name, &first);
    uint64_t once = threads(context);
    rkm_add(context, data, size, name, &second);
    if (first.status == MERGE_OK && second.status == MERGE_OK) {
        require(threads(context) == 2 * once);
        require(first.rank == second.rank && first.world_size == second.world_size &&
                first.job == second.job);
    } else if (first.status != MERGE_OUT_OF_MEMORY && second.status != MERGE_OUT_OF_MEMORY) {
        require(first.status == second.status);
        require(rkm_item_count(context) == 0);
    }
    rkm_free(context);

    /* The same with next to no memory: every allocation fails at some size of input. */
    context = rkm_new(size * 4);
    if (context != NULL) {
        rkm_add(context, data, size, name, &first);
        rkm_free(context);
    }
    return 0;
}
