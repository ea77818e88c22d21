#include "slots.h"

#include <stdlib.h>

void slots_place(struct slots *slots, uint64_t hash, uint32_t number)
{
    size_t mask = slots->count - 1;
    size_t slot = hash & mask;
    while (slots->at[slot] != 0) {
        slot = (slot + 1) & mask;
    }
    slots->at[slot] = number + 1;
}

bool slots_make_room(struct slots *slots, struct memory *memory, uint32_t used, slots_hash *hash_of,
                     const void *table)
{
    if ((size_t)used * 2 < slots->count) {
        return true;
    }
    size_t wanted = slots->count == 0 ? 256 : slots->count * 2;
    size_t cost = (wanted - slots->count) * sizeof *slots->at;
    if (wanted > UINT32_MAX || cost > memory->left) {
        return false;
    }
    uint32_t *at = calloc(wanted, sizeof *at);
    if (at == NULL) {
        return false;
    }
    memory->left -= cost;
    free(slots->at);
    slots->at = at;
    slots->count = wanted;
    for (uint32_t number = 0; number < used; number++) {
        slots_place(slots, hash_of(table, number), number);
    }
    return true;
}
