/* One merge in the making: everything that the files read so far have in common. */
#ifndef RELKIT_MERGE_CONTEXT_H
#define RELKIT_MERGE_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "intern.h"
#include "memory.h"
#include "tally.h"

/* The limits of relkit/stacks/dumpfile.py; a test holds them against each other. */
enum {
    MAX_FILE_BYTES = 64 << 20,
    MAX_THREADS = 65536,
    MAX_FRAMES = 65536,
    MAX_FILE_FRAMES = 262144,
    MAX_TEXTS = 4096,
};

enum merge_status {
    MERGE_OK = 0,
    MERGE_UNREADABLE = 1,
    MERGE_NOT_REGULAR = 2,
    MERGE_MALFORMED = 3,
    MERGE_OUT_OF_MEMORY = 4,
};

/* Same order as relkit/stacks/model.py's Role; ROLE_UNSET: the file does not say. */
enum { ROLE_MAIN = 0, ROLE_OTHER = 6, ROLE_COUNT = 7, ROLE_UNSET = 255 };

/* What one file says about itself. job: number of its job id in the texts. */
struct merge_head {
    int32_t status;
    int32_t rank;
    int32_t world_size;
    uint32_t job;
    int64_t captured_unix_ns;
};

struct dump_thread {
    uint32_t lwp;
    uint32_t stack;
    uint32_t name;
    uint8_t role;
};

struct thread_list {
    struct dump_thread *items;
    size_t capacity;
    size_t count;
};

struct tail_meaning {
    uint32_t stack;
    uint32_t frames;
};

/* A stack's bytes as files hold them -> its number, so that equal bytes are parsed once. Of the
 * innermost frame it is what the merge takes of it: its offset differs from rank to rank, because
 * they are caught at different instructions of one function. */
struct tail_table {
    struct intern_table bytes;
    struct tail_meaning *meanings;
    size_t capacity;
    /* The tail of each thread of the file before, by its place: ranks are mostly alike, and
     * comparing with the right guess is faster than hashing. */
    uint32_t *guesses;
    size_t guesses_capacity;
    size_t guesses_count;
};

enum { NATIVE = 0, PYTHON = 1 };

struct merge_context {
    struct memory memory;
    struct intern_table texts; /* thread names, process states, notes, job ids */
    struct intern_table
        stacks; /* distinct stacks: (size, bytes) of func, source and mark a frame */
    struct intern_table distinct_frames; /* of the stacks that frames_of was asked for */
    uint32_t *frame_numbers;             /* of the stack that it was last asked for */
    size_t frame_numbers_capacity;
    struct tail_table tails[2]; /* native, Python */
    size_t tail_room;           /* bytes that tails may still take */
    struct tally_table tallies;
    bool out_of_memory; /* for good: a rank may be counted in part */

    /* Scratch of the file in hand. */
    struct thread_list threads[2]; /* native, Python */
    size_t frames;                 /* of all threads together */
    uint32_t *notes;
    size_t notes_capacity;
    size_t notes_count;
    uint64_t *order; /* Python threads: thread id in the upper half, place in the lower */
    size_t order_capacity;
    uint32_t *taken; /* per thread id how many are taken; then per place whether it is */
    size_t taken_capacity;
    uint8_t *canonical;
    size_t canonical_capacity;
    uint8_t *tail;
    size_t tail_capacity;
    uint8_t *file;
    size_t file_capacity;
};

#endif
