/* dlsym, for the names of device functions only: Triton, ctypes and the CUDA runtime itself reach the
 * driver that way, past every wrapper.
 *
 * The real dlsym looks at its return address to know the caller, whom RTLD_NEXT and RTLD_DEFAULT mean.
 * So the entry is assembler: it asks the filter below, and where that has nothing to say, jumps to the
 * real function with stack and arguments as they came. The filter is quick with other names (one
 * comparison of the first letters), takes no lock and allocates nothing of its own, and is not
 * instrumented: a sanitizer's or an allocator's first act may be a dlsym. */
#define _GNU_SOURCE
#include "symbol_lookup.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

#include "loader/loaded.h"
#include "loader/platforms.h"
#include "loader/resolve.h"
#include "table/hook_rows.h"

enum { FIRST_DEVICE_ROW = RK_HOOK_CUDA_LAUNCH, PER_THREAD_FLAG = 2, VERSION_12 = 12000 };

/* What the filter says besides an address. */
enum { ASK_THE_REAL_ONE = 0, NOTHING = 1 };

__attribute__((visibility("hidden"))) void *rk_real_dlsym;

__attribute__((visibility("hidden"), used)) uintptr_t rk_filter_symbol(void *handle,
                                                                       const char *name,
                                                                       uintptr_t caller);

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "    endbr64\n"
        "    pushq %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    subq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    movq 24(%rsp), %rdx\n"
        "    call rk_filter_symbol\n"
        "    addq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    testq %rax, %rax\n"
        "    je 2f\n"
        "    cmpq $1, %rax\n"
        "    jne 1f\n"
        "    xorl %eax, %eax\n"
        "1:  ret\n"
        "2:  jmp *rk_real_dlsym(%rip)\n"
        ".cfi_endproc\n"
        ".size dlsym, .-dlsym\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, %function\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "    hint #34\n" /* bti c */
        "    stp x29, x30, [sp, #-32]!\n"
        "    .cfi_def_cfa_offset 32\n"
        "    .cfi_offset x29, -32\n"
        "    .cfi_offset x30, -24\n"
        "    stp x0, x1, [sp, #16]\n"
        "    mov x29, sp\n"
        "    mov x2, x30\n"
        "    bl rk_filter_symbol\n"
        "    mov x9, x0\n"
        "    ldp x0, x1, [sp, #16]\n"
        "    ldp x29, x30, [sp], #32\n"
        "    .cfi_restore x29\n"
        "    .cfi_restore x30\n"
        "    .cfi_def_cfa_offset 0\n"
        "    cbz x9, 1f\n"
        "    cmp x9, #1\n"
        "    csel x0, xzr, x9, eq\n"
        "    ret\n"
        "1:  adrp x16, rk_real_dlsym\n"
        "    ldr x16, [x16, :lo12:rk_real_dlsym]\n"
        "    br x16\n"
        ".cfi_endproc\n"
        ".size dlsym, .-dlsym\n");
#endif

#define WRAPPER_OF(id, platform, kind, name, required)                                             \
    extern __attribute__((visibility("hidden"), weak)) char rk_wrapper_##id[];
RELKIT_HOOKS(WRAPPER_OF)
#undef WRAPPER_OF

/* NULL for rows that are no device functions. */
static char *const wrappers[RK_HOOK_COUNT] = {
#define WRAPPER_OF(id, platform, kind, name, required) [RK_HOOK_##id] = rk_wrapper_##id,
    RELKIT_HOOKS(WRAPPER_OF)
#undef WRAPPER_OF
};

static RK_PLAIN int same(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

static RK_PLAIN int could_be_ours(const char *name)
{
    switch (name[0]) {
    case 'c':
        return name[1] == 'u';
    case 'm':
        return name[1] == 'c';
    case 'h':
        return name[1] == 'i' && name[2] == 'p';
    case 'n':
        return name[1] == 'c' && name[2] == 'c';
    case 'a':
        return name[1] == 'c' && name[2] == 'l';
    case 'H':
        return name[1] == 'c' && name[2] == 'c';
    default:
        return 0;
    }
}

static RK_PLAIN int row_named(const char *name)
{
    for (int i = FIRST_DEVICE_ROW; i < RK_HOOK_COUNT; i++)
        if (wrappers[i] != NULL && same(rk_hook_rows[i].symbol, name))
            return i;
    return -1;
}

/* One wrapper leads to one function. Who asks for the same name in a second library gets that
 * library's function as it is, unhooked. */
static bool stands_for(int row, uintptr_t function)
{
    if (rk_hand_out((enum rk_hook_id)row, function))
        return true;
    rk_add_note(RK_NOTE_SECOND_RUNTIME);
    return false;
}

static bool switched_off(void)
{
    const char *disable = getenv("RELKIT_HOOK_DISABLE");
    return disable != NULL && same(disable, "1");
}

RK_PLAIN uintptr_t rk_filter_symbol(void *handle, const char *name, uintptr_t caller)
{
    if (__atomic_load_n(&rk_real_dlsym, __ATOMIC_ACQUIRE) == NULL) {
        void *real = rk_find_real_dlsym();
        if (real == NULL)
            return NOTHING;
        __atomic_store_n(&rk_real_dlsym, real, __ATOMIC_RELEASE);
    }
    if (name == NULL || !could_be_ours(name))
        return ASK_THE_REAL_ONE;
    int row = row_named(name);
    if (row < 0 || !rk_platform_wanted(rk_platform_of_row((enum rk_hook_id)row)))
        return ASK_THE_REAL_ONE;
    /* After us there is nothing, so the answer would be us. The failing look-up is for dlerror. */
    if (handle == RTLD_NEXT)
        return rk_dlsym(RTLD_NEXT, name) == NULL ? NOTHING : ASK_THE_REAL_ONE;
    uintptr_t wrapper = (uintptr_t)wrappers[row];
    uintptr_t function = handle != RTLD_DEFAULT ? (uintptr_t)rk_dlsym(handle, name) : wrapper;
    if (function == 0)
        return ASK_THE_REAL_ONE; /* which says why not */
    uintptr_t own = rk_peek_original((enum rk_hook_id)row, caller);
    if (function == wrapper) {
        /* Without us there would have been nothing, or what the caller finds by itself. */
        if (own != 0)
            return wrapper;
        rk_dlsym(RTLD_NEXT, name);
        return NOTHING;
    }
    if (switched_off())
        return function;
    if (own != 0 && own != function) {
        rk_add_note(RK_NOTE_SECOND_RUNTIME);
        return function;
    }
    return stands_for(row, function) ? wrapper : function;
}

/* The names under which cuGetProcAddress knows what we wrap; the second row is for programs whose
 * default stream is the thread's own. */
static const struct {
    const char *name;
    enum rk_hook_id row, per_thread;
} driver_names[] = {
    {"cuLaunchKernel", RK_HOOK_CU_MODULE_LAUNCH, RK_HOOK_CU_MODULE_LAUNCH_PT},
    {"cuLaunchKernelEx", RK_HOOK_CU_MODULE_LAUNCH_EX, RK_HOOK_CU_MODULE_LAUNCH_EX_PT},
    {"cuLaunchCooperativeKernel", RK_HOOK_CU_MODULE_LAUNCH_COOPERATIVE,
     RK_HOOK_CU_MODULE_LAUNCH_COOPERATIVE_PT},
    {"cuGraphLaunch", RK_HOOK_CU_GRAPH_LAUNCH, RK_HOOK_CU_GRAPH_LAUNCH_PT},
    {"cuCtxDestroy", RK_HOOK_CU_CONTEXT_DESTROY, RK_HOOK_CU_CONTEXT_DESTROY},
    {"cuDevicePrimaryCtxReset", RK_HOOK_CU_PRIMARY_RESET, RK_HOOK_CU_PRIMARY_RESET},
};

void *rk_driver_wrapper(const char *symbol, void *function, int version, uint64_t flags)
{
    int row = -1;
    if (same(symbol, "cuGetProcAddress"))
        row = version >= VERSION_12 ? RK_HOOK_CU_GET_ADDRESS_V2 : RK_HOOK_CU_GET_ADDRESS;
    for (size_t i = 0; row < 0 && i < sizeof driver_names / sizeof *driver_names; i++)
        if (same(symbol, driver_names[i].name))
            row = flags & PER_THREAD_FLAG ? (int)driver_names[i].per_thread
                                          : (int)driver_names[i].row;
    if (row < 0 || !rk_platform_wanted(RK_PLATFORM_CUDA) || function == (void *)wrappers[row])
        return function;
    return stands_for(row, (uintptr_t)function) ? (void *)wrappers[row] : function;
}
