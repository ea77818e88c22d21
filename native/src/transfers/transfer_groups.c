#define _GNU_SOURCE
#include "transfer_groups.h"

#include <stddef.h>
#include <string.h>

#include "core/clock.h"
#include "device/timing.h"

/* What goes beyond is only counted: an all-to-all by send and receive has two a rank. */
enum { GROUPS = 32, GROUP_OPS = 128, GROUP_COMMUNICATORS = 16, GROUP_STREAMS = 16 };

struct rk_group {
    _Atomic uint32_t taken;
    uint32_t count, created_count, streams;
    struct {
        struct rk_op op;
        uint32_t stream;
    } ops[GROUP_OPS];
    struct rk_timing timing[GROUP_STREAMS];
    enum rk_platform vendor[GROUP_STREAMS];
    struct rk_new_communicator created[GROUP_COMMUNICATORS];
};

static struct rk_group groups[GROUPS];

static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
    struct rk_group *group;
    uint32_t depth;
} open_group;

static struct rk_group *take_group(void)
{
    for (int i = 0; i < GROUPS; i++) {
        uint32_t taken = 0;
        if (atomic_compare_exchange_strong(&groups[i].taken, &taken, 1)) {
            groups[i].count = groups[i].created_count = groups[i].streams = 0;
            return &groups[i];
        }
    }
    return NULL;
}

void rk_group_start(void)
{
    /* The library's own groups, inside a collective, are part of that. */
    if (rk_inside())
        return;
    if (open_group.depth++ == 0)
        open_group.group = take_group();
}

bool rk_group_open(void)
{
    return open_group.depth != 0;
}

static int stream_in(struct rk_group *group, enum rk_platform vendor, void *stream)
{
    for (uint32_t i = 0; i < group->streams; i++)
        if (group->timing[i].stream == stream && group->vendor[i] == vendor)
            return (int)i;
    if (group->streams == GROUP_STREAMS)
        return -1;
    group->timing[group->streams].stream = stream;
    group->vendor[group->streams] = vendor;
    return (int)group->streams++;
}

bool rk_group_add(const struct rk_op *op, enum rk_platform vendor, void *stream)
{
    struct rk_group *group = open_group.group;
    if (group == NULL || group->count == GROUP_OPS)
        return false;
    int at = stream_in(group, vendor, stream);
    if (at < 0)
        return false;
    group->ops[group->count].op = *op;
    group->ops[group->count++].stream = (uint32_t)at;
    return true;
}

void rk_communicator_created(const struct rk_new_communicator *created, int result)
{
    if (result != 0 && result != created->library->in_progress)
        return;
    struct rk_group *group = open_group.group;
    if (open_group.depth == 0)
        rk_communicator_enter(created);
    else if (group != NULL && group->created_count < GROUP_COMMUNICATORS)
        group->created[group->created_count++] = *created;
}

void rk_group_end_begin(struct rk_group_end *end)
{
    end->group = NULL;
    bool outermost = !rk_inside() && open_group.depth != 0 && --open_group.depth == 0;
    end->scope = rk_enter();
    if (!outermost)
        return;
    struct rk_group *group = end->group = open_group.group;
    open_group.group = NULL;
    if (group == NULL || end->scope.slot == NULL || group->count == 0)
        return;
    end->scope.op = group->ops[0].op;
    rk_begin(&end->scope);
    for (uint32_t i = 0; i < group->streams; i++)
        rk_timing_start(&group->timing[i], group->vendor[i], group->timing[i].stream);
}

/* An operation without device times: as long as the call was. */
static void record_by_host(struct rk_scope *scope, struct rk_op *op, bool good)
{
    op->start_ns = scope->op.start_ns;
    op->end_ns = rk_clock_ns(CLOCK_MONOTONIC);
    if (!good)
        op->flags |= RK_OP_FAILED;
    atomic_fetch_add_explicit(&scope->header->dropped, 1, memory_order_relaxed);
    rk_record(scope->header, scope->slot, op, 1);
}

static void record(struct rk_group *group, struct rk_scope *scope, bool good, bool timed)
{
    bool usable[GROUP_STREAMS];
    rk_hand_over(scope);
    rk_add_started(scope->slot, (int64_t)group->count - 1);
    for (uint32_t i = 0; i < group->streams; i++)
        usable[i] = group->timing[i].result == RK_TIMING_ON && rk_timing_end(&group->timing[i]);
    for (uint32_t i = 0; i < group->count; i++) {
        struct rk_op op = group->ops[i].op;
        uint32_t stream = group->ops[i].stream;
        op.start_ns = op.enqueue_ns = scope->op.start_ns;
        op.flags |= RK_OP_DEVICE | RK_OP_QUEUED;
        if (group->timing[stream].result == RK_TIMING_CAPTURED) {
            rk_add_started(scope->slot, -1);
            rk_count(scope);
        } else if (!usable[stream] || !timed || !rk_timing_post(&group->timing[stream], &op, 1)) {
            op.flags &= ~(uint32_t)(RK_OP_DEVICE | RK_OP_QUEUED);
            op.enqueue_ns = 0;
            record_by_host(scope, &op, good);
        }
    }
    for (uint32_t i = 0; i < group->streams; i++)
        if (usable[i])
            rk_timing_close(&group->timing[i]);
}

void rk_group_end_finish(struct rk_group_end *end, struct rk_transfer_library *library, int result)
{
    struct rk_group *group = end->group;
    bool good = result == 0 || result == library->in_progress;
    if (group != NULL) {
        for (uint32_t i = 0; good && i < group->created_count; i++)
            rk_communicator_enter(&group->created[i]);
        if (end->scope.begun)
            record(group, &end->scope, good, result == 0);
        atomic_store(&group->taken, 0);
    }
    end->scope.returned = true;
    rk_leave(&end->scope);
}

void rk_transfers_after_fork(void)
{
    memset(&open_group, 0, sizeof open_group);
    for (int i = 0; i < GROUPS; i++)
        atomic_store(&groups[i].taken, 0);
}
