/* Byte strings -> small numbers, each distinct string once. Equality is always memcmp's word:
 * a hash alone would let two stacks of a hostile file pass for one. */
#ifndef RELKIT_MERGE_INTERN_H
#define RELKIT_MERGE_INTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory.h"
#include "slots.h"

#define INTERN_NONE UINT32_MAX

struct intern_entry {
    uint64_t hash;
    const uint8_t *data;
    uint32_t size;
};

struct intern_table {
    uint64_t seed;
    struct intern_entry *entries;
    size_t capacity;
    uint32_t count;
    struct slots slots;
};

uint64_t intern_hash(uint64_t seed, const uint8_t *data, size_t size);

/* The number of a string, INTERN_NONE where it is not in the table. */
uint32_t intern_find(const struct intern_table *table, uint64_t hash, const uint8_t *data,
                     size_t size);

/* Add a string that intern_find has not found; INTERN_NONE where memory runs out. */
uint32_t intern_add(struct intern_table *table, struct memory *memory, uint64_t hash,
                    const uint8_t *data, size_t size);

/* Find or add. */
uint32_t intern(struct intern_table *table, struct memory *memory, const uint8_t *data,
                size_t size);

void intern_release(struct intern_table *table);

#endif
