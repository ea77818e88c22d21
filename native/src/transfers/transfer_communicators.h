/* Communicators of NCCL and its like: which is which group of ranks. */
#ifndef RELKIT_TRANSFER_COMMUNICATORS_H
#define RELKIT_TRANSFER_COMMUNICATORS_H

#include <stdbool.h>
#include <stdint.h>

#include "relkit/state_layout.h"

/* A function of the library, looked up once, and again after anything was unloaded. */
struct rk_sibling {
    _Atomic uintptr_t function;
    _Atomic uint32_t unloads;
};

/* Public queries of the library, found where its collectives are. */
struct rk_transfer_library {
    const char *count, *rank, *abort;
    int in_progress; /* result of a call that goes on in the background; -1 where there is none */
    struct rk_sibling count_function, rank_function, abort_function;
};

/* A communicator is made; what is not known is negative, and asked for. */
struct rk_new_communicator {
    void **where; /* holds the communicator when the call, or the group around it, is over */
    struct rk_transfer_library *library;
    uintptr_t original;
    int32_t rank, size;
    uint64_t name; /* the same on every rank; 0 = none */
};

/* Enters a new communicator in the header's table, now. */
void rk_communicator_enter(const struct rk_new_communicator *created);

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

#endif
