/* Memory with a ceiling: a merge that would need more says so instead of taking the host down. */
#ifndef RELKIT_MERGE_MEMORY_H
#define RELKIT_MERGE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

struct chunk;

/* `left` is what may still be allocated, in bytes; chunks hold what is never freed singly. */
struct memory {
    size_t left;
    struct chunk *chunks;
};

/* Bytes that live as long as the memory; NULL where the ceiling or the host says no. */
void *memory_take(struct memory *memory, size_t size);

/* Grow an array to hold at least `wanted` items; its contents are kept.
 * False, with the array as it was, where the ceiling or the host says no. */
bool memory_grow(struct memory *memory, void **array, size_t *capacity, size_t wanted,
                 size_t item_size);

/* Free what memory_take gave out. Arrays of memory_grow are the caller's to free(). */
void memory_release(struct memory *memory);

#endif
