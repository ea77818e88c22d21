#include "platforms.h"

#include <stdlib.h>
#include <string.h>

#include "core/recorder.h"
#include "loaded.h"
#include "table/hook_rows.h"

/* Rows that one library has; the names are those under which it is known to be loaded. */
static const struct group {
    enum rk_hook_id first, last;
    const char *library;
} groups[] = {
#define GROUP(name, library) {RK_HOOK_##name##_FIRST, RK_HOOK_##name##_LAST, library}
    GROUP(CUDA, "libcudart"),         GROUP(CU, "libcuda"),       GROUP(CUBLAS, "libcublas"),
    GROUP(CUBLASLT, "libcublasLt"),   GROUP(NCCL, "libnccl"),     GROUP(RCCL, "librccl"),
    GROUP(MACA, "libmcruntime"),      GROUP(MCBLAS, "libmcblas"), GROUP(MCBLASLT, "libmcblasLt"),
    GROUP(MCCL, "libmccl"),           GROUP(HIP, "libamdhip64"),  GROUP(HIPBLAS, "libhipblas"),
    GROUP(HIPBLASLT, "libhipblaslt"), GROUP(ACL, "libascendcl"),  GROUP(HCCL, "libhccl"),
#undef GROUP
};

#define TORCH_LIBRARY "libtorch_cpu"

enum { GROUPS = sizeof groups / sizeof *groups, EVERY = (1 << RK_PLATFORM_COUNT) - 1 };

#define PLATFORM_relkit RK_PLATFORM_CPU
#define PLATFORM_cpu RK_PLATFORM_CPU
#define PLATFORM_cuda RK_PLATFORM_CUDA
#define PLATFORM_maca RK_PLATFORM_MACA
#define PLATFORM_hip RK_PLATFORM_HIP
#define PLATFORM_ascend RK_PLATFORM_ASCEND

static const uint8_t row_platform[RK_HOOK_COUNT] = {
#define PLATFORM(id, platform, kind, name, required) [RK_HOOK_##id] = PLATFORM_##platform,
    RELKIT_HOOKS(PLATFORM)
#undef PLATFORM
};

static const char *const platform_names[RK_PLATFORM_COUNT] = {"cpu", "cuda", "maca", "hip",
                                                              "ascend"};

_Atomic uint32_t rk_platforms_wanted = EVERY;

/* What was found, for the headers to come; see rk_platforms_publish. */
static _Atomic uint32_t seen, notes;
static _Atomic uint64_t missing[RK_MISSING_WORDS];

static _Atomic bool nccl_is_hip;
static _Atomic bool examined[GROUPS], torch_examined;

void rk_platforms_configure(void)
{
    const char *text = getenv("RELKIT_HOOK_PLATFORMS");
    if (text == NULL || *text == '\0')
        return;
    uint32_t wanted = 0;
    for (int i = 0; i < RK_PLATFORM_COUNT; i++) {
        size_t length = strlen(platform_names[i]);
        for (const char *at = text; at != NULL; at = strchr(at, ',')) {
            at += *at == ',';
            if (strncmp(at, platform_names[i], length) == 0 &&
                (at[length] == ',' || at[length] == '\0'))
                wanted |= 1u << i;
        }
    }
    atomic_store(&rk_platforms_wanted, wanted);
}

enum rk_platform rk_platform_of_row(enum rk_hook_id hook)
{
    return (enum rk_platform)row_platform[hook];
}

static bool is_nccl(enum rk_hook_id hook)
{
    return RK_HOOK_NCCL_FIRST <= hook && hook <= RK_HOOK_NCCL_LAST;
}

enum rk_platform rk_platform_of_call(enum rk_hook_id hook)
{
    if (is_nccl(hook) && atomic_load_explicit(&nccl_is_hip, memory_order_relaxed))
        return RK_PLATFORM_HIP;
    return rk_platform_of_row(hook);
}

void rk_platforms_publish(struct rk_header *header)
{
    atomic_fetch_or(&header->platforms, atomic_load(&seen));
    atomic_fetch_or(&header->hook_notes, atomic_load(&notes));
    for (int i = 0; i < RK_MISSING_WORDS; i++)
        atomic_fetch_or(&header->missing[i], atomic_load(&missing[i]));
}

static void publish(void)
{
    struct rk_header *header = atomic_load(&rk_state);
    if (header != NULL)
        rk_platforms_publish(header);
}

void rk_add_note(uint32_t bit)
{
    atomic_fetch_or(&notes, bit);
    publish();
}

static int group_of(enum rk_hook_id hook)
{
    for (int i = 0; i < GROUPS; i++)
        if (groups[i].first <= hook && hook <= groups[i].last)
            return i;
    return -1;
}

/* The library has been reached: which of the functions that it should have does it lack? */
static void note_missing(const struct group *group, uintptr_t function)
{
    for (int row = (int)group->first; row <= (int)group->last; row++)
        if (!rk_defines(function, rk_hook_rows[row].symbol))
            atomic_fetch_or(&missing[row / 64], UINT64_C(1) << row % 64);
}

/* Once PyTorch is loaded: which of the rows for the CPU does it lack? */
static void note_missing_of_torch(void)
{
    struct rk_object torch;
    if (atomic_load(&torch_examined) || !rk_object_named(TORCH_LIBRARY, &torch) ||
        atomic_exchange(&torch_examined, true))
        return;
    for (int row = 0; row < RK_HOOK_COUNT; row++)
        if (strcmp(rk_hook_rows[row].platform, "cpu") == 0 &&
            rk_function_of(TORCH_LIBRARY, rk_hook_rows[row].symbol) == 0)
            atomic_fetch_or(&missing[row / 64], UINT64_C(1) << row % 64);
}

static void examine(int at, enum rk_hook_id hook, uintptr_t function)
{
    struct rk_object object;
    const struct group *group = &groups[at];
    if (!rk_object_at(function, &object))
        return;
    if (is_nccl(hook)) {
        struct rk_object other;
        bool hip = strncmp(rk_base_name(&object), "librccl", 7) == 0 ||
                   (!rk_is_library(rk_base_name(&object), group->library) &&
                    rk_object_named("libamdhip64", &other) && !rk_object_named("libcuda", &other));
        atomic_store(&nccl_is_hip, hip);
    }
    if (object.path[0] != '\0') /* linked into the program: what is not used is not there */
        note_missing(group, function);
    struct rk_object runtime;
    if (group->first == RK_HOOK_CU_FIRST && !rk_object_named("libcudart", &runtime))
        rk_add_note(RK_NOTE_STATIC_CUDART);
}

void rk_platform_seen(enum rk_hook_id hook, uintptr_t function)
{
    int at = group_of(hook);
    if (at >= 0 && !atomic_exchange(&examined[at], true))
        examine(at, hook, function);
    note_missing_of_torch();
    if (at >= 0 || rk_platform_of_row(hook) == RK_PLATFORM_CPU)
        atomic_fetch_or(&seen, 1u << rk_platform_of_call(hook));
    publish();
}
