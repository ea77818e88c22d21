/* dlsym for the names of device functions: Triton, ctypes and the CUDA runtime itself reach the driver
 * that way. And dlopen and dlclose, because the loader tells nobody when it has loaded something.
 *
 * The real dlsym and dlopen look at their return address to know the caller: whom RTLD_NEXT and
 * RTLD_DEFAULT mean, and whose search path counts. So the entries are assembler: they ask the filters
 * below, and jump to the real function with stack and arguments as they came. The filters are quick with
 * all that is not ours, take no lock and allocate nothing of their own, and are not instrumented: a
 * sanitizer's or an allocator's first act may be a dlsym. */
#define _GNU_SOURCE
#include "symbol_lookup.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

#include "loader/interpose.h"
#include "loader/loaded.h"
#include "loader/platforms.h"
#include "table/hook_rows.h"

enum { FIRST_DEVICE_ROW = RK_HOOK_CUDA_LAUNCH, PER_THREAD_FLAG = 2, VERSION_12 = 12000 };

enum { ASK_THE_REAL_ONE = 0 };

__attribute__((visibility("hidden"))) void *rk_real_dlsym;

__attribute__((visibility("hidden"), used)) uintptr_t rk_filter_symbol(void *handle,
                                                                       const char *name,
                                                                       uintptr_t caller);

__attribute__((visibility("hidden"), used)) uintptr_t rk_filter_load(const char *file);

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
        "    je 1f\n"
        "    ret\n"
        "1:  jmp *rk_real_dlsym(%rip)\n"
        ".cfi_endproc\n"
        ".size dlsym, .-dlsym\n"
        ".globl dlopen\n"
        ".type dlopen, @function\n"
        "dlopen:\n"
        ".cfi_startproc\n"
        "    endbr64\n"
        "    pushq %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    subq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    call rk_filter_load\n"
        "    addq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    jmp *%rax\n"
        ".cfi_endproc\n"
        ".size dlopen, .-dlopen\n");
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
        "    mov x0, x9\n"
        "    ret\n"
        "1:  adrp x16, rk_real_dlsym\n"
        "    ldr x16, [x16, :lo12:rk_real_dlsym]\n"
        "    br x16\n"
        ".cfi_endproc\n"
        ".size dlsym, .-dlsym\n"
        ".globl dlopen\n"
        ".type dlopen, %function\n"
        "dlopen:\n"
        ".cfi_startproc\n"
        "    hint #34\n" /* bti c */
        "    stp x29, x30, [sp, #-32]!\n"
        "    .cfi_def_cfa_offset 32\n"
        "    .cfi_offset x29, -32\n"
        "    .cfi_offset x30, -24\n"
        "    stp x0, x1, [sp, #16]\n"
        "    mov x29, sp\n"
        "    bl rk_filter_load\n"
        "    mov x16, x0\n"
        "    ldp x0, x1, [sp, #16]\n"
        "    ldp x29, x30, [sp], #32\n"
        "    .cfi_restore x29\n"
        "    .cfi_restore x30\n"
        "    .cfi_def_cfa_offset 0\n"
        "    br x16\n"
        ".cfi_endproc\n"
        ".size dlopen, .-dlopen\n");
#else
/* A call at the end of a function is a jump here too, but nobody promises that; and dlsym is left as it
 * is. */
void *dlopen(const char *file, int mode)
{
    return ((void *(*)(const char *, int))rk_filter_load(file))(file, mode);
}
#endif

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
        if (same(rk_hook_rows[i].symbol, name))
            return i;
    return -1;
}

/* The entry for a function that was looked up by name. Who asks for the same name in a second library
 * gets that library's function as it is, unhooked: there is one device to time on. */
static uintptr_t hand_out(enum rk_hook_id row, uintptr_t function)
{
    struct rk_object object;
    if (rk_is_own(function)) /* the library's own pointer to it is diverted */
        return function;
    if (rk_leads_elsewhere(row, function)) {
        rk_add_note(RK_NOTE_SECOND_RUNTIME);
        return function;
    }
    uintptr_t entry = rk_entry_for(row, function, rk_object_at(function, &object));
    return entry != 0 ? entry : function;
}

static bool switched_off(void)
{
    const char *disable = getenv("RELKIT_HOOK_DISABLE");
    return disable != NULL && same(disable, "1");
}

/* What RTLD_DEFAULT finds for a caller: in the global scope, then in what its object needs. */
static uintptr_t find_for(uintptr_t caller, const char *name)
{
    struct rk_object object;
    uintptr_t function = (uintptr_t)rk_dlsym(RTLD_DEFAULT, name);
    if (function != 0 || !rk_object_at(caller, &object))
        return function;
    void *handle = rk_open_loaded(&object);
    if (handle != NULL) {
        function = (uintptr_t)rk_dlsym(handle, name);
        rk_dlclose(handle);
    }
    return function;
}

RK_PLAIN uintptr_t rk_filter_symbol(void *handle, const char *name, uintptr_t caller)
{
    if (__atomic_load_n(&rk_real_dlsym, __ATOMIC_ACQUIRE) == NULL)
        __atomic_store_n(&rk_real_dlsym, rk_find_real_dlsym(), __ATOMIC_RELEASE);
    rk_interpose_look();
    if (name == NULL || !could_be_ours(name))
        return ASK_THE_REAL_ONE;
    int row = row_named(name);
    /* Who asks for the next one is an interposer itself, and means the real one. */
    if (row < 0 || handle == RTLD_NEXT || switched_off() ||
        !rk_platform_wanted(rk_platform_of_row((enum rk_hook_id)row)))
        return ASK_THE_REAL_ONE;
    uintptr_t function =
        handle != RTLD_DEFAULT ? (uintptr_t)rk_dlsym(handle, name) : find_for(caller, name);
    if (function == 0)
        return ASK_THE_REAL_ONE; /* which says why not */
    return hand_out((enum rk_hook_id)row, function);
}

static void *open_and_look(const char *file, int mode)
{
    void *handle = rk_dlopen(file, mode);
    if (handle != NULL)
        rk_interpose_update();
    return handle;
}

RK_PLAIN uintptr_t rk_filter_load(const char *file)
{
    /* A path is the same whoever asks. For a bare name the caller's own search path counts, and what
     * is loaded inherits that of its loader: then the real one must see the real caller. */
    bool same_for_all = file != NULL && !rk_search_paths_are_inherited();
    bool path = false;
    for (const char *at = file; same_for_all && *at != '\0'; at++) {
        path = path || *at == '/';
        same_for_all = *at != '$';
    }
    uintptr_t real = rk_real_dlopen();
    if (real == 0 || (same_for_all && path))
        return (uintptr_t)open_and_look;
    rk_interpose_expect();
    return real;
}

__attribute__((visibility("default"))) int dlclose(void *handle)
{
    int result = rk_dlclose(handle);
    rk_interpose_update();
    return result;
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
    if (row < 0 || !rk_platform_wanted(RK_PLATFORM_CUDA))
        return function;
    return (void *)hand_out((enum rk_hook_id)row, (uintptr_t)function);
}
