#include "memory.h"

#include <stdint.h>
#include <stdlib.h>

enum { CHUNK_BYTES = 1 << 20, ALIGNMENT = 8 };

struct chunk {
    struct chunk *next;
    size_t used;
    size_t size;
    unsigned char bytes[];
};

static struct chunk *new_chunk(struct memory *memory, size_t size)
{
    size_t total = sizeof(struct chunk) + size;
    if (total > memory->left) {
        return NULL;
    }
    struct chunk *chunk = malloc(total);
    if (chunk == NULL) {
        return NULL;
    }
    memory->left -= total;
    chunk->used = 0;
    chunk->size = size;
    return chunk;
}

void *memory_take(struct memory *memory, size_t size)
{
    if (size > SIZE_MAX / 2) {
        return NULL;
    }
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct chunk *chunk = memory->chunks;
    if (chunk == NULL || size > chunk->size - chunk->used) {
        size_t room = size > CHUNK_BYTES / 4 ? size : CHUNK_BYTES;
        struct chunk *fresh = new_chunk(memory, room);
        if (fresh == NULL) {
            return NULL;
        }
        if (room == size && chunk != NULL) {
            /* A big piece fills its own chunk; small ones go on in the one that is open. */
            fresh->next = chunk->next;
            chunk->next = fresh;
        } else {
            fresh->next = chunk;
            memory->chunks = fresh;
        }
        chunk = fresh;
    }
    void *piece = chunk->bytes + chunk->used;
    chunk->used += size;
    return piece;
}

bool memory_grow(struct memory *memory, void **array, size_t *capacity, size_t wanted,
                 size_t item_size)
{
    if (wanted <= *capacity) {
        return true;
    }
    size_t room = *capacity < 4 ? 4 : *capacity;
    while (room < wanted) {
        if (room > SIZE_MAX / 2) {
            return false;
        }
        room *= 2;
    }
    if (room > SIZE_MAX / item_size || (room - *capacity) * item_size > memory->left) {
        return false;
    }
    void *grown = realloc(*array, room * item_size);
    if (grown == NULL) {
        return false;
    }
    memory->left -= (room - *capacity) * item_size;
    *array = grown;
    *capacity = room;
    return true;
}

void memory_release(struct memory *memory)
{
    struct chunk *chunk = memory->chunks;
    while (chunk != NULL) {
        struct chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    memory->chunks = NULL;
}
