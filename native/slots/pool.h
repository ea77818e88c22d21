/* Threads that copy blocks. They hold neither Python's lock nor any other while they copy, and
 * allocate nothing. */
#ifndef RELKIT_SLOTS_POOL_H
#define RELKIT_SLOTS_POOL_H

#include <stdint.h>

#include "blocks.h"

struct pool;

enum { POOL_MAX_THREADS = 64 };

/* A pool of sleeping threads, at least one; NULL where not even one can be made. */
struct pool *pool_new(uint32_t threads);

/* End the threads, after what they have in hand. */
void pool_free(struct pool *pool);

/* Begin with the blocks [first, end) of a transfer, which is copied; what it points to must live
 * until pool_wait has returned. 0, EBUSY where one is under way, EINVAL where it is not sound. */
int pool_start(struct pool *pool, const struct transfer *transfer, uint64_t first, uint64_t end);

/* Wait for the end of what was started. 0, or EILSEQ where a block is not as it was saved, with the
 * lowest such in *bad. */
int pool_wait(struct pool *pool, uint64_t *bad);

#endif
