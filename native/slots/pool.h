/* Threads that copy blocks. While they copy they hold no lock, Python's included, and allocate
 * nothing. */
#ifndef RELKIT_SLOTS_POOL_H
#define RELKIT_SLOTS_POOL_H

#include <stdint.h>

#include "blocks.h"

struct pool;

enum { POOL_MAX_THREADS = 64 };

/* Start a pool of threads; NULL where not even one thread can be started. */
struct pool *pool_new(uint32_t threads);

/* Stop the threads; no copy may be under way. */
void pool_free(struct pool *pool);

/* Copy the blocks [first, end) of a transfer, and return when that is done. 0; EINVAL where the
 * transfer is not sound; EBUSY while another caller is copying; EILSEQ where a block does not match
 * its checksum: *bad is the lowest such block. */
int pool_copy(struct pool *pool, const struct transfer *transfer, uint64_t first, uint64_t end,
              uint64_t *bad);

#endif
