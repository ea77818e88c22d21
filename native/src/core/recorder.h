/* Writes what a thread does into the thread's own slot: no lock, no allocation, no system call
 * except on the thread's first operation.
 *
 *     struct rk_scope scope = rk_enter();
 *     if (scope.slot != NULL) { fill scope.op; rk_begin(&scope); }
 *     ... the real call ...
 *     rk_leave(&scope);
 *
 * Every rk_enter needs its rk_leave, also when an exception passes: see RK_SCOPE. */
#ifndef RELKIT_RECORDER_H
#define RELKIT_RECORDER_H

#include <stdbool.h>

#include "state_file.h"

struct rk_scope {
    struct rk_header *header;
    struct rk_slot *slot; /* NULL: not the outermost call, or not recording */
    bool returned;        /* set by the wrapper when the real call came back normally */
    bool begun;
    uint32_t detaches; /* rk_detaches when it began */
    struct rk_op op;
};

/* The file that this process records into; NULL while it records nothing. */
extern _Atomic(struct rk_header *) rk_state;

/* Counts rk_recorder_forget calls, so that a call that was under way notices. */
extern _Atomic uint32_t rk_detaches;

/* Starts recording into `header`; call once per process. */
void rk_recorder_start(struct rk_header *header);

/* Forgets the file and this thread's slot: for the child after fork, where only this thread
 * exists. */
void rk_recorder_forget(void);

/* Notes that this thread enters a hooked call. */
struct rk_scope rk_enter(void);

/* Publishes scope->op as in flight; start_ns and tid are filled here. */
void rk_begin(struct rk_scope *scope);

/* Instead of rk_begin, for an operation that is not worth two readings of the clock. */
void rk_count(struct rk_scope *scope);

/* The call is over: moves it to the ring, as failed unless `returned` is set. */
void rk_leave(struct rk_scope *scope);

/* Appends a finished operation or mark to the event ring. Any thread, no lock; `op->end_ns` is
 * taken for now. */
void rk_append_event(struct rk_header *header, const struct rk_op *op);

/* This thread's id, as the kernel counts. */
uint32_t rk_thread_id(void);

/* Whether this thread is inside a hooked operation. */
bool rk_inside(void);

/* For an operation that goes on after its call, on a device: the call is over, the operation is not.
 * Somebody else lands it. */
void rk_hand_over(struct rk_scope *scope);

/* For a call that turns out to start nothing: it was begun, and is only counted instead. */
void rk_withdraw(struct rk_scope *scope);

#define RK_SCOPE(name) __attribute__((cleanup(rk_leave))) struct rk_scope name = rk_enter()

/* Kinds of launches, sampled each by itself. */
enum rk_series {
    RK_SERIES_KERNEL,
    RK_SERIES_GEMM,
    RK_SERIES_GRAPH,
    RK_SERIES_MEMORY,
    RK_SERIES_COUNT
};

/* One launch in so many is timed; 0 = none. */
extern _Atomic uint32_t rk_sample_every;

/* For launches, which are too many and too short for a scope: enters and counts. True: this one is to
 * be timed, and rk_pass_count must follow. Every rk_pass_enter needs its rk_pass_leave. */
bool rk_pass_enter(enum rk_series series);
void rk_pass_leave(void);

/* Counts the launch that rk_pass_enter picked: as started, where the device now has it to time, or as
 * one of the untimed. */
void rk_pass_count(bool timed);

/* Counts operations that begin with a call already begun; negative: that never began. */
void rk_add_started(struct rk_slot *slot, int64_t count);

/* A slot that belongs to no thread's calls but to the calling thread's list of operations on devices.
 * NULL where there is none left. Only one thread at a time may use it. */
struct rk_slot *rk_device_slot(void);

/* Shows an operation as in flight in such a slot, and takes it away. */
void rk_device_show(struct rk_slot *slot, const struct rk_op *op);
void rk_device_hide(struct rk_slot *slot);

/* Puts a finished operation into the rings; the slot is the caller's own. `weight`: how many launches
 * it stands for in the header's busy_ns. */
void rk_record(struct rk_header *header, struct rk_slot *slot, const struct rk_op *op,
               uint32_t weight);

/* Numbers kept per thread for the hooks' own use. */
struct rk_thread_notes {
    uint64_t context; /* last context looked up, and what was found */
    uint32_t context_epoch;
    int32_t context_index;
    /* For hooks/gloo_posts.c: the same of gloo's transport contexts. */
    uint64_t transport;
    uint32_t transport_epoch;
    int32_t transport_index;
    /* For hooks/gloo_groups.c: groups under construction on this thread. */
    const void *group;  /* the ProcessGroupGloo that the next name is for */
    const void *helper; /* the one that checks it (TORCH_DISTRIBUTED_DEBUG=DETAIL) */
    int32_t connecting; /* index + 1 of the communicator that is being connected */
    uint32_t unnamed_count;
    struct {
        const void *group;
        int32_t communicator;
    } unnamed[8];
};

struct rk_thread_notes *rk_thread_notes(void);

#endif
