/* Collectives and point-to-point operations of NCCL and its like: what a wrapper does before and after
 * the real call. */
#ifndef RELKIT_TRANSFERS_H
#define RELKIT_TRANSFERS_H

#include "core/recorder.h"
#include "device/timing.h"
#include "table/table.h"
#include "transfer_communicators.h"

enum rk_transfer_kind { RK_TRANSFER_COLLECTIVE, RK_TRANSFER_SEND, RK_TRANSFER_RECV };

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

#endif
