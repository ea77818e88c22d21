/* What is called between ...GroupStart and ...GroupEnd. */
#ifndef RELKIT_TRANSFER_GROUPS_H
#define RELKIT_TRANSFER_GROUPS_H

#include "core/recorder.h"
#include "transfer_communicators.h"

/* Between ...GroupStart and ...GroupEnd nothing runs; the operations start together at the end. */
void rk_group_start(void);

struct rk_group_end {
    struct rk_scope scope;
    struct rk_group *group; /* NULL: an inner end, or nothing to record */
};

void rk_group_end_begin(struct rk_group_end *end);
void rk_group_end_finish(struct rk_group_end *end, struct rk_transfer_library *library, int result);

/* Keeps the operation for the end of the group; false where there is no group. */
bool rk_group_add(const struct rk_op *op, enum rk_platform vendor, void *stream);

/* This thread is between GroupStart and GroupEnd. */
bool rk_group_open(void);

/* A communicator came to be: enters it now, or at the end of the group. */
void rk_communicator_created(const struct rk_new_communicator *created, int result);

void rk_transfers_after_fork(void);

#endif
