/* A merged tree as folded text: one line for every frame at which some stack ends. */
#ifndef RELKIT_MERGE_LINES_H
#define RELKIT_MERGE_LINES_H

#include <stdint.h>

/* One frame of the tree. */
struct rkm_line_frame {
    uint32_t depth; /* frames above it; at most one more than the frame before has */
    uint32_t name;
    uint32_t ranks; /* number of a set */
    uint32_t ends;  /* 1: some stack ends here */
};

/* A tree. Texts and sets lie one behind the other; `..._ends[i]` is where number i ends. */
struct rkm_lines {
    const struct rkm_line_frame *frames; /* parents first, each with all that is below it */
    uint64_t frame_count;
    const char *names; /* as the file is to have them */
    const uint64_t *name_ends;
    uint64_t name_count;
    const uint8_t *sets; /* bits, lowest of a byte first; or inclusive int32_t (low, high) pairs */
    const uint64_t *set_ends;
    const uint8_t *set_is_bits;
    uint64_t set_count;  /* at least 1: set 0 is the ranks that were read */
    uint64_t rank_bytes; /* bytes that a bit for each rank of the job takes */
};

/* What rkm_write_lines promises. */
int32_t lines_write(int file, const struct rkm_lines *lines);

#endif
