/* Reads of memory that may not be there, in a signal handler: a read that would fault says so instead. */
#ifndef RELKIT_CHECKED_MEMORY_H
#define RELKIT_CHECKED_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RK_KNOWN_PAGES = 8 };

/* Pages that were found readable; start with {0}, one a walk. */
struct rk_checked_memory {
    uintptr_t page[RK_KNOWN_PAGES]; /* address + 1, 0 = none */
    unsigned next;
};

/* Copies at most 8 bytes. False where one of them cannot be read. */
bool rk_checked_read(struct rk_checked_memory *memory, uintptr_t from, void *to, size_t size);

#endif
