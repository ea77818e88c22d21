#include "slots.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "crc32c.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* not in the headers of an older C library */
#endif

uint32_t rks_abi(void)
{
    return RKS_ABI;
}

uint32_t rks_crc32c(uint32_t checksum, const void *data, uint64_t size)
{
    return crc32c(checksum, data, (size_t)size);
}

uint32_t rks_crc32c_by_table(uint32_t checksum, const void *data, uint64_t size)
{
    return crc32c_by_table(checksum, data, (size_t)size);
}

uint32_t rks_crc32c_in_hardware(void)
{
    return crc32c_in_hardware();
}

struct pool *rks_pool_new(uint32_t threads)
{
    return pool_new(threads);
}

void rks_pool_free(struct pool *pool)
{
    pool_free(pool);
}

int32_t rks_copy(struct pool *pool, const struct transfer *transfer, uint64_t first, uint64_t end,
                 uint64_t *bad)
{
    return pool_copy(pool, transfer, first, end, bad);
}

void rks_withdraw(uint64_t *slot, uint64_t state)
{
    __atomic_store_n(slot, state, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void rks_publish(uint64_t *slot, const uint64_t *header, uint64_t words)
{
    memcpy(slot + 1, header + 1, (size_t)(words - 1) * sizeof *header);
    __atomic_store_n(slot, header[0], __ATOMIC_RELEASE);
}

uint64_t rks_state(const uint64_t *slot)
{
    return __atomic_load_n(slot, __ATOMIC_ACQUIRE);
}

int32_t rks_populate(void *address, uint64_t size)
{
    return madvise(address, (size_t)size, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
}
