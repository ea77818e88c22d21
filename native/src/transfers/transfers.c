#include "transfers.h"

#include <stddef.h>

#include "core/communicators.h"
#include "core/peers.h"
#include "transfer_groups.h"

static void add_dropped(struct rk_header *header)
{
    atomic_fetch_add_explicit(&header->dropped, 1, memory_order_relaxed);
}

/* NCCL and its like match sends and receives by their order alone: they have no tags. */
static void post(struct rk_header *header, int communicator, const struct rk_transfer_call *call,
                 struct rk_op *op)
{
    bool receives = call->kind == RK_TRANSFER_RECV;
    rk_peer_post(header, (struct rk_transfer_key){communicator, receives, call->peer, 0}, op);
}

void rk_transfer_begin(struct rk_transfer *transfer, const struct rk_transfer_call *call)
{
    struct rk_scope *scope = &transfer->scope;
    *scope = rk_enter();
    transfer->grouped = false;
    transfer->timing.result = RK_TIMING_OFF;
    if (scope->slot == NULL)
        return;
    struct rk_op *op = &scope->op;
    int index =
        rk_transfer_communicator(scope->header, call->library, call->communicator, call->original);
    op->hook = (uint16_t)call->hook;
    op->communicator = (int16_t)index;
    op->peer = call->peer;
    op->size_bytes = call->size_bytes;
    if (index < 0)
        add_dropped(scope->header);
    else if (call->times_size)
        op->size_bytes *= (uint64_t)rk_communicators(scope->header)[index].size;
    if (index >= 0 && call->kind == RK_TRANSFER_COLLECTIVE)
        op->seq = rk_communicator_advance(scope->header, index, -1);
    else if (index >= 0)
        post(scope->header, index, call, op);
    if (rk_group_open()) {
        transfer->grouped = true;
        if (!rk_group_add(op, call->vendor, call->stream))
            rk_count(scope);
        return;
    }
    rk_begin(scope);
    if (rk_timing_start(&transfer->timing, call->vendor, call->stream) == RK_TIMING_CAPTURED)
        rk_withdraw(scope);
}

static bool hand_over(struct rk_transfer *transfer)
{
    struct rk_scope *scope = &transfer->scope;
    struct rk_op op = scope->op;
    op.enqueue_ns = op.start_ns;
    op.flags |= RK_OP_DEVICE | RK_OP_QUEUED;
    if (!rk_timing_post(&transfer->timing, &op, 1))
        return false;
    rk_hand_over(scope);
    return true;
}

void rk_transfer_end(struct rk_transfer *transfer, struct rk_transfer_library *library, int result)
{
    struct rk_scope *scope = &transfer->scope;
    scope->returned = result == 0 || result == library->in_progress;
    /* Work that a background thread enqueues later is not between our two events. */
    bool timed = transfer->timing.result == RK_TIMING_ON && rk_timing_end(&transfer->timing);
    bool handed = timed && result == 0 && hand_over(transfer);
    if (timed)
        rk_timing_close(&transfer->timing);
    if (scope->begun && !handed && scope->returned)
        add_dropped(scope->header);
    rk_leave(scope);
}
