/* Where a function keeps its caller's registers, by the call frame information that compilers write
 * (.eh_frame, as the Linux Standard Base and DWARF 5 section 6.4 describe it). */
#ifndef RELKIT_FRAME_RULES_H
#define RELKIT_FRAME_RULES_H

#include "checked_memory.h"

#if defined(__x86_64__)
enum { RK_REGISTERS = 17, RK_STACK_POINTER = 7, RK_RETURN_COLUMN = 16 };
#else
enum { RK_REGISTERS = 33, RK_STACK_POINTER = 31, RK_RETURN_COLUMN = 30 };
#endif

struct rk_frame {
    uintptr_t pc;
    uintptr_t value[RK_REGISTERS]; /* by DWARF number */
    bool exact; /* pc is the next instruction itself; a return address may be after the function */
};

enum rk_step {
    RK_STEP_DONE,
    RK_STEP_OUTERMOST, /* the frame says that it has no caller */
    RK_STEP_UNKNOWN,   /* no information on this address */
    RK_STEP_BROKEN,    /* what there is cannot be true */
};

/* Turns the frame into its caller's. Async-signal-safe. */
enum rk_step rk_frame_step(struct rk_checked_memory *memory, struct rk_frame *frame);

/* Looks up what rk_frame_step needs; not async-signal-safe, so before any signal. */
void rk_frames_prepare(void);

/* Whether rk_frame_step can find anything in this process. */
bool rk_frames_can_be_found(void);

#endif
