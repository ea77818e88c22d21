/* The interface that relkit/flash_checkpoint/slots/native_copy.py loads. */
#ifndef RELKIT_SLOTS_H
#define RELKIT_SLOTS_H

#include "pool.h"

#define RKS_EXPORT __attribute__((visibility("default")))

enum { RKS_ABI = 3 };

/* The version of this interface, RKS_ABI. */
RKS_EXPORT uint32_t rks_abi(void);

/* See crc32c.h. */
RKS_EXPORT uint32_t rks_crc32c(uint32_t checksum, const void *data, uint64_t size);
RKS_EXPORT uint32_t rks_crc32c_by_table(uint32_t checksum, const void *data, uint64_t size);
RKS_EXPORT uint32_t rks_crc32c_in_hardware(void);

/* See pool.h. */
RKS_EXPORT struct pool *rks_pool_new(uint32_t threads);
RKS_EXPORT void rks_pool_free(struct pool *pool);
RKS_EXPORT int32_t rks_copy(struct pool *pool, const struct transfer *transfer, uint64_t first,
                            uint64_t end, uint64_t *bad);

/* Store a slot's first word, its state; everything written to the slot afterwards is seen later. */
RKS_EXPORT void rks_withdraw(uint64_t *slot, uint64_t state);

/* Write a slot's header: the state word last, after everything written before this call. */
RKS_EXPORT void rks_publish(uint64_t *slot, const uint64_t *header, uint64_t words);

/* Give pages of a mapping memory before anything is written to them: the first write to each is slow.
 * address: of a page. Returns 0, or the errno of the kernel, such as EINVAL before Linux 5.14; nothing
 * is lost then, because the first write does the same. */
RKS_EXPORT int32_t rks_populate(void *address, uint64_t size);

/* Load a slot's state word; everything read from the slot afterwards is read later. */
RKS_EXPORT uint64_t rks_state(const uint64_t *slot);

#endif
