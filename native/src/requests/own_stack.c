#include "own_stack.h"

#include <stdatomic.h>
#include <stddef.h>

/* Untouched pages cost nothing. A handler needs some 8 KiB. */
enum { STACKS = 32, STACK_BYTES = 32768 };

static _Alignas(4096) char stacks[STACKS][STACK_BYTES];
static atomic_flag taken[STACKS];

__attribute__((visibility("hidden"))) void rk_switch_stack(void *top, void (*function)(void *),
                                                           void *argument);

#if defined(__x86_64__)
__asm__(".text\n"
        ".hidden rk_switch_stack\n"
        ".globl rk_switch_stack\n"
        ".type rk_switch_stack, @function\n"
        "rk_switch_stack:\n"
        ".cfi_startproc\n"
        "    endbr64\n"
        "    pushq %rbp\n"
        "    .cfi_def_cfa_offset 16\n"
        "    .cfi_offset %rbp, -16\n"
        "    movq %rsp, %rbp\n"
        "    .cfi_def_cfa_register %rbp\n"
        "    movq %rdi, %rsp\n"
        "    movq %rdx, %rdi\n"
        "    call *%rsi\n"
        "    movq %rbp, %rsp\n"
        "    popq %rbp\n"
        "    .cfi_def_cfa %rsp, 8\n"
        "    ret\n"
        ".cfi_endproc\n"
        ".size rk_switch_stack, .-rk_switch_stack\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".hidden rk_switch_stack\n"
        ".globl rk_switch_stack\n"
        ".type rk_switch_stack, %function\n"
        "rk_switch_stack:\n"
        ".cfi_startproc\n"
        "    hint #34\n" /* bti c */
        "    stp x29, x30, [sp, #-16]!\n"
        "    .cfi_def_cfa_offset 16\n"
        "    .cfi_offset x29, -16\n"
        "    .cfi_offset x30, -8\n"
        "    mov x29, sp\n"
        "    .cfi_def_cfa_register x29\n"
        "    mov sp, x0\n"
        "    mov x0, x2\n"
        "    blr x1\n"
        "    mov sp, x29\n"
        "    ldp x29, x30, [sp], #16\n"
        "    .cfi_def_cfa sp, 0\n"
        "    .cfi_restore x29\n"
        "    .cfi_restore x30\n"
        "    ret\n"
        ".cfi_endproc\n"
        ".size rk_switch_stack, .-rk_switch_stack\n");
#else
void rk_switch_stack(void *top, void (*function)(void *), void *argument)
{
    (void)top;
    function(argument);
}
#endif

bool rk_call_on_own_stack(void (*function)(void *), void *argument)
{
    for (int i = 0; i < STACKS; i++) {
        if (atomic_flag_test_and_set_explicit(&taken[i], memory_order_acquire))
            continue;
        rk_switch_stack(stacks[i] + STACK_BYTES, function, argument);
        atomic_flag_clear_explicit(&taken[i], memory_order_release);
        return true;
    }
    return false;
}

void rk_own_stacks_after_fork(void)
{
    for (int i = 0; i < STACKS; i++)
        atomic_flag_clear(&taken[i]);
}
