/* The places of a hash table whose items stand in an array of their own: a place holds the
 * number of its item. */
#ifndef RELKIT_MERGE_SLOTS_H
#define RELKIT_MERGE_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory.h"

struct slots {
    uint32_t *at; /* item number + 1, 0 for free; a power of two of them, half full at most */
    size_t count;
};

/* The hash of an item that the table holds. */
typedef uint64_t slots_hash(const void *table, uint32_t number);

/* Make room for one item more than `used`; false, with the places as they were, where memory
 * runs out. */
bool slots_make_room(struct slots *slots, struct memory *memory, uint32_t used, slots_hash *hash_of,
                     const void *table);

/* Take the next free place; slots_make_room has seen to it that there is one. */
void slots_place(struct slots *slots, uint64_t hash, uint32_t number);

#endif
