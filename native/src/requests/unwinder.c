/* Walks a stack in a signal handler, however odd the code is that was interrupted.
 *
 * libgcc's unwinder believes what it is told: where call frame information is wrong (hand-written assembler,
 * a coroutine's first frame) it reads wherever that leads, and the program dies of it. This one checks
 * every read, and gives up instead. Nor does it take a lock or allocate. */
#define _GNU_SOURCE
#include "unwinder.h"

#include <string.h>
#include <ucontext.h>
#include <unwind.h>

#include "frame_rules.h"

static void begin(struct rk_frame *frame, const ucontext_t *user)
{
    memset(frame, 0, sizeof *frame);
    frame->exact = true;
#if defined(__x86_64__)
    static const int by_dwarf_number[RK_REGISTERS] = {
        REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8,
        REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
    for (int i = 0; i < RK_REGISTERS; i++)
        frame->value[i] = (uintptr_t)user->uc_mcontext.gregs[by_dwarf_number[i]];
    frame->pc = frame->value[RK_RETURN_COLUMN];
#elif defined(__aarch64__)
    for (int i = 0; i < 31; i++)
        frame->value[i] = (uintptr_t)user->uc_mcontext.regs[i];
    frame->value[RK_STACK_POINTER] = (uintptr_t)user->uc_mcontext.sp;
    frame->pc = (uintptr_t)user->uc_mcontext.pc;
#else
    (void)user;
#endif
}

int rk_unwind(const void *context, uintptr_t *addresses, int limit, bool *truncated)
{
    struct rk_checked_memory memory = {{0}, 0};
    struct rk_frame frame;
    int count = 0;
    begin(&frame, context);
    *truncated = false;
    while (frame.pc != 0) {
        if (count == limit) {
            *truncated = true;
            break;
        }
        addresses[count++] = frame.pc;
        enum rk_step step = rk_frame_step(&memory, &frame);
        *truncated = step == RK_STEP_BROKEN;
        if (step != RK_STEP_DONE)
            break;
    }
    return count;
}

static _Unwind_Reason_Code stop(struct _Unwind_Context *context, void *unused)
{
    (void)context;
    (void)unused;
    return _URC_END_OF_STACK;
}

void rk_unwind_prepare(void)
{
    rk_frames_prepare();
    _Unwind_Backtrace(stop, NULL);
}

bool rk_unwind_is_possible(void)
{
#if defined(__x86_64__) || defined(__aarch64__)
    return rk_frames_can_be_found();
#else
    return false;
#endif
}
