/* Collectives and point-to-point operations of NCCL and its like: what a wrapper does before and after
 * the real call. */
#ifndef RELKIT_HOOKS_TRANSFERS_H
#define RELKIT_HOOKS_TRANSFERS_H

#include "../core/recorder.h"
#include "../device/aborts.h"
#include "../device/timing.h"
#include "table.h"

/* Public queries of the library, found where its collectives are. */
struct rk_transfer_library {
    const char *count, *rank, *abort;
    int in_progress; /* result of a call that goes on in the background; -1 where there is none */
    _Atomic uintptr_t count_function, rank_function, abort_function;
};

enum rk_transfer_kind { RK_TRANSFER_COLLECTIVE, RK_TRANSFER_P2P };

struct rk_transfer {
    struct rk_scope scope;
    struct rk_timing timing;
    bool grouped;
};

/* What is transferred: `rank_elements` counts per rank, and collectives whose buffers grow with the
 * group say so with `times_size`. */
struct rk_transfer_call {
    struct rk_transfer_library *library;
    enum rk_hook_id hook;
    enum rk_transfer_kind kind;
    enum rk_platform vendor;
    void *communicator, *stream;
    uintptr_t original;
    uint64_t size_bytes;
    int32_t peer;
    bool times_size;
};

void rk_transfer_begin(struct rk_transfer *transfer, const struct rk_transfer_call *call);

void rk_transfer_end(struct rk_transfer *transfer, struct rk_transfer_library *library, int result);

/* Between ...GroupStart and ...GroupEnd nothing runs; the operations start together at the end. */
void rk_group_start(void);

struct rk_group_end {
    struct rk_scope scope;
    struct rk_group *group; /* NULL: an inner end, or nothing to record */
};

void rk_group_end_begin(struct rk_group_end *end);
void rk_group_end_finish(struct rk_group_end *end, struct rk_transfer_library *library, int result);

/* For transfers.c: keeps the operation for the end of the group; false where there is no group. */
bool rk_group_add(const struct rk_op *op, enum rk_platform vendor, void *stream);

/* This thread is between GroupStart and GroupEnd. */
bool rk_group_open(void);

/* A communicator is made; what is not known is negative, and asked for. */
struct rk_birth {
    void **where; /* holds the communicator when the call, or the group around it, is over */
    struct rk_transfer_library *library;
    uintptr_t original;
    int32_t rank, size;
    uint64_t name; /* the same on every rank; 0 = none */
};

/* Now, or at the end of the group. */
void rk_birth_note(const struct rk_birth *birth, int result);

/* For transfer_groups.c: now. */
void rk_birth(const struct rk_birth *birth);

/* Index of a communicator in the header's table, entered where it is new; -1 where it tells nothing of
 * itself. */
int rk_transfer_communicator(struct rk_header *header, struct rk_transfer_library *library,
                             void *communicator, uintptr_t original);

/* Name of the next child of a communicator by a split with this color. */
uint64_t rk_split_name(void *communicator, int64_t color);

/* The program ends a communicator. False where it has been ended by us, and must not be touched. */
bool rk_communicator_ends(void *communicator);

#define RK_HASH_START UINT64_C(0xcbf29ce484222325)

/* FNV-1a */
uint64_t rk_hash(uint64_t hash, const void *bytes, uint64_t count);

void rk_transfers_after_fork(void);

#endif
