/* Who has one thing: a stack pair, a process state, a note. */
#ifndef RELKIT_MERGE_TALLY_H
#define RELKIT_MERGE_TALLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "intern.h"
#include "memory.h"
#include "slots.h"

enum { TALLY_NAMES = 8 };

enum tally_kind { TALLY_THREAD = 0, TALLY_STATE = 1, TALLY_NOTE = 2 };

/* first, second: numbers of stacks (native, Python) or of one text; INTERN_NONE for none.
 * role: that of the pair, or ROLE_UNSET where the file does not say it: then the name and the
 * stack of the native thread tell it, and `fallback` counts where they tell nothing. */
struct tally_key {
    uint32_t first;
    uint32_t second;
    uint32_t native_name; /* of a role or fallback that is ROLE_UNSET, else INTERN_NONE */
    uint32_t python_name;
    uint8_t kind;
    uint8_t role;
    uint8_t fallback;
};

/* intervals: inclusive (low, high) pairs in the order in which ranks came. */
struct tally {
    struct tally_key key;
    uint64_t threads;
    int32_t *intervals;
    size_t capacity; /* of int32_t */
    size_t used;     /* of int32_t */
    uint32_t names[TALLY_NAMES];
    uint32_t name_count;
};

struct tally_table {
    uint64_t seed;
    struct tally *items;
    size_t capacity;
    uint32_t count;
    struct slots slots;
};

/* Find or make a key's tally; NULL where memory runs out. Valid until the next call. */
struct tally *tally_of(struct tally_table *table, struct memory *memory, struct tally_key key);

/* One more rank; cheap where ranks come in order. */
bool tally_add_rank(struct tally *tally, struct memory *memory, int32_t rank);

/* One more thread name: the eight first ones by bytes are kept, whatever the order of adding. */
void tally_add_name(struct tally *tally, const struct intern_table *texts, uint32_t name);

void tally_release(struct tally_table *table);

#endif
