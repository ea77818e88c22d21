#include "intern.h"

#include <stdlib.h>
#include <string.h>

__extension__ typedef unsigned __int128 uint128;

/* Odd constants with about half of their bits set; any such do. */
static const uint64_t MIX_A = 0x9e6c63d0876a46c3u;
static const uint64_t MIX_B = 0xd3833e804f4c574bu;

static uint64_t fold_product(uint64_t a, uint64_t b)
{
    uint128 product = (uint128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t load(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

uint64_t intern_hash(uint64_t seed, const uint8_t *data, size_t size)
{
    uint64_t left = seed ^ MIX_A;
    uint64_t right = seed ^ MIX_B;
    size_t rest = size;
    /* Two independent chains keep both multipliers of the core busy. */
    for (; rest >= 32; rest -= 32, data += 32) {
        left = fold_product(load(data) ^ MIX_A, load(data + 8) ^ left);
        right = fold_product(load(data + 16) ^ MIX_B, load(data + 24) ^ right);
    }
    for (; rest >= 8; rest -= 8, data += 8) {
        left = fold_product(load(data) ^ MIX_A, left ^ MIX_B);
    }
    uint64_t last = 0;
    if (rest > 0) {
        memcpy(&last, data, rest);
    }
    right = fold_product(last ^ MIX_B, right ^ size);
    return fold_product(left ^ MIX_A, right ^ MIX_B);
}

uint32_t intern_find(const struct intern_table *table, uint64_t hash, const uint8_t *data,
                     size_t size)
{
    if (table->slots.count == 0) {
        return INTERN_NONE;
    }
    size_t mask = table->slots.count - 1;
    for (size_t slot = hash & mask; table->slots.at[slot] != 0; slot = (slot + 1) & mask) {
        uint32_t number = table->slots.at[slot] - 1;
        const struct intern_entry *entry = &table->entries[number];
        if (entry->hash == hash && entry->size == size &&
            (size == 0 || memcmp(entry->data, data, size) == 0)) {
            return number;
        }
    }
    return INTERN_NONE;
}

static uint64_t hash_of(const void *table, uint32_t number)
{
    return ((const struct intern_table *)table)->entries[number].hash;
}

uint32_t intern_add(struct intern_table *table, struct memory *memory, uint64_t hash,
                    const uint8_t *data, size_t size)
{
    if (size > UINT32_MAX || table->count >= INTERN_NONE - 1) {
        return INTERN_NONE;
    }
    if (!slots_make_room(&table->slots, memory, table->count, hash_of, table)) {
        return INTERN_NONE;
    }
    void *entries = table->entries;
    bool grown = memory_grow(memory, &entries, &table->capacity, (size_t)table->count + 1,
                             sizeof *table->entries);
    table->entries = entries;
    if (!grown) {
        return INTERN_NONE;
    }
    uint8_t *copy = memory_take(memory, size);
    if (copy == NULL) {
        return INTERN_NONE;
    }
    if (size > 0) {
        memcpy(copy, data, size);
    }
    uint32_t number = table->count++;
    table->entries[number] = (struct intern_entry){hash, copy, (uint32_t)size};
    slots_place(&table->slots, hash, number);
    return number;
}

uint32_t intern(struct intern_table *table, struct memory *memory, const uint8_t *data, size_t size)
{
    uint64_t hash = intern_hash(table->seed, data, size);
    uint32_t known = intern_find(table, hash, data, size);
    return known != INTERN_NONE ? known : intern_add(table, memory, hash, data, size);
}

void intern_release(struct intern_table *table)
{
    free(table->entries);
    free(table->slots.at);
    table->entries = NULL;
    table->slots.at = NULL;
}
