#include "tally.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash_key(uint64_t seed, const struct tally_key *key)
{
    uint32_t words[5] = {key->first, key->second, key->native_name, key->python_name,
                         (uint32_t)key->kind << 16 | (uint32_t)key->fallback << 8 | key->role};
    return intern_hash(seed, (const uint8_t *)words, sizeof words);
}

static bool same_key(const struct tally_key *a, const struct tally_key *b)
{
    return a->first == b->first && a->second == b->second && a->native_name == b->native_name &&
           a->python_name == b->python_name && a->kind == b->kind && a->role == b->role &&
           a->fallback == b->fallback;
}

static uint64_t hash_of(const void *table, uint32_t number)
{
    const struct tally_table *tallies = table;
    return hash_key(tallies->seed, &tallies->items[number].key);
}

struct tally *tally_of(struct tally_table *table, struct memory *memory, struct tally_key key)
{
    if (table->slots.count > 0) {
        size_t mask = table->slots.count - 1;
        size_t slot = hash_key(table->seed, &key) & mask;
        for (; table->slots.at[slot] != 0; slot = (slot + 1) & mask) {
            struct tally *tally = &table->items[table->slots.at[slot] - 1];
            if (same_key(&tally->key, &key)) {
                return tally;
            }
        }
    }
    if (!slots_make_room(&table->slots, memory, table->count, hash_of, table)) {
        return NULL;
    }
    void *items = table->items;
    bool grown = memory_grow(memory, &items, &table->capacity, (size_t)table->count + 1,
                             sizeof *table->items);
    table->items = items;
    if (!grown) {
        return NULL;
    }
    struct tally *tally = &table->items[table->count];
    memset(tally, 0, sizeof *tally);
    tally->key = key;
    slots_place(&table->slots, hash_key(table->seed, &key), table->count++);
    return tally;
}

bool tally_add_rank(struct tally *tally, struct memory *memory, int32_t rank)
{
    if (tally->used > 0) {
        int32_t *last = &tally->intervals[tally->used - 2];
        /* rank - 1 instead of high + 1: the highest rank has no successor to overflow to. */
        if (last[0] <= rank && rank - 1 <= last[1]) {
            if (rank > last[1]) {
                last[1] = rank;
            }
            return true;
        }
    }
    void *intervals = tally->intervals;
    bool grown = memory_grow(memory, &intervals, &tally->capacity, tally->used + 2,
                             sizeof *tally->intervals);
    tally->intervals = intervals;
    if (!grown) {
        return false;
    }
    tally->intervals[tally->used++] = rank;
    tally->intervals[tally->used++] = rank;
    return true;
}

static int compare(const struct intern_table *texts, uint32_t a, uint32_t b)
{
    const struct intern_entry *left = &texts->entries[a];
    const struct intern_entry *right = &texts->entries[b];
    size_t common = left->size < right->size ? left->size : right->size;
    int order = common == 0 ? 0 : memcmp(left->data, right->data, common);
    return order != 0 ? order : (left->size > right->size) - (left->size < right->size);
}

void tally_add_name(struct tally *tally, const struct intern_table *texts, uint32_t name)
{
    uint32_t count = tally->name_count;
    for (uint32_t i = 0; i < count; i++) {
        if (tally->names[i] == name) {
            return;
        }
    }
    uint32_t at = count;
    while (at > 0 && compare(texts, name, tally->names[at - 1]) < 0) {
        at--;
    }
    if (at == TALLY_NAMES) {
        return;
    }
    if (count < TALLY_NAMES) {
        tally->name_count = ++count;
    }
    memmove(&tally->names[at + 1], &tally->names[at], (count - at - 1) * sizeof tally->names[0]);
    tally->names[at] = name;
}

void tally_release(struct tally_table *table)
{
    for (uint32_t i = 0; i < table->count; i++) {
        free(table->items[i].intervals);
    }
    free(table->items);
    free(table->slots.at);
    table->items = NULL;
    table->slots.at = NULL;
    table->count = 0;
}
