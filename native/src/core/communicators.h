/* Process groups: which gloo context is which group, and how far each has come. */
#ifndef RELKIT_COMMUNICATORS_H
#define RELKIT_COMMUNICATORS_H

#include "state_file.h"

/* Index of `context` in the table, added where it is new; -1 where the table is full.
 * Two threads that add the same context at once get the same index. */
int rk_communicator_of(struct rk_header *header, uint64_t context, int32_t rank, int32_t size);

/* Index of `context`, -1 where it is unknown. */
int rk_communicator_find(struct rk_header *header, uint64_t context);

/* A new context was built at this address: what was there before is gone. */
void rk_communicator_retire(struct rk_header *header, uint64_t context);

/* Gives the group its job-wide name; the first name stays. */
void rk_communicator_name(struct rk_header *header, int index, const char *name, uint64_t length);

/* A collective starts. `tag` is gloo's, or -1 where that cannot be trusted, and then the group's
 * own count is used. Returns the sequence number. */
int64_t rk_communicator_advance(struct rk_header *header, int index, int64_t tag);

/* Changes when an index found earlier may mean another context. */
extern _Atomic uint32_t rk_communicator_epoch;

#endif
