/* The loader binds a caller's symbol in the global scope first, which is what RTLD_NEXT searches,
 * and then in the caller's own scope: its object and what that depends on. PyTorch arrives by
 * dlopen(RTLD_LOCAL), so for it RTLD_NEXT finds nothing and the second step decides. Asking per
 * caller also keeps apart two BLAS libraries in one process, each called by its own user. */
#define _GNU_SOURCE
#include "resolve.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>

#include "core/recorder.h"
#include "hooks/hook_rows.h"

#define TORCH_LIBRARY "libtorch_cpu.so"

struct rk_original rk_originals[RK_HOOK_COUNT][RK_KNOWN_CALLERS];

struct object {
    uintptr_t address;     /* looked for: the object that holds this address ... */
    const char *base_name; /* ... or the one with this file name */
    uintptr_t low, high;
    char path[4096];
};

static int match_object(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    struct object *object = data;
    uintptr_t low = UINTPTR_MAX, high = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD)
            continue;
        uintptr_t from = info->dlpi_addr + segment->p_vaddr;
        low = from < low ? from : low;
        high = from + segment->p_memsz > high ? from + segment->p_memsz : high;
    }
    const char *name = info->dlpi_name != NULL ? info->dlpi_name : "";
    const char *slash = strrchr(name, '/');
    const char *base = slash != NULL ? slash + 1 : name;
    int found = object->base_name != NULL ? strcmp(base, object->base_name) == 0
                                          : low <= object->address && object->address < high;
    size_t length = strlen(name);
    if (!found || length >= sizeof object->path)
        return 0;
    memcpy(object->path, name, length + 1);
    object->low = low;
    object->high = high;
    return 1;
}

/* A handle on an object that is loaded already. It is never closed: what is found through it is
 * kept for good, so the object must stay. */
static void *open_loaded(const struct object *object)
{
    return object->path[0] != '\0' ? dlopen(object->path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
}

static uintptr_t own_wrapper(enum rk_hook_id hook)
{
    static _Atomic(void *) own;
    void *handle = atomic_load(&own);
    if (handle == NULL) {
        Dl_info info;
        if (dladdr(rk_originals, &info) != 0)
            handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        atomic_store(&own, handle);
    }
    return handle != NULL ? (uintptr_t)dlsym(handle, rk_hook_rows[hook].symbol) : 0;
}

static uintptr_t look_in(void *handle, enum rk_hook_id hook)
{
    uintptr_t function = handle != NULL ? (uintptr_t)dlsym(handle, rk_hook_rows[hook].symbol) : 0;
    return function == own_wrapper(hook) ? 0 : function;
}

static void *torch_handle(void)
{
    static _Atomic(void *) handle;
    void *known = atomic_load_explicit(&handle, memory_order_acquire);
    if (known != NULL)
        return known;
    struct object torch = {.base_name = TORCH_LIBRARY};
    if (dl_iterate_phdr(match_object, &torch) == 0)
        return NULL;
    known = open_loaded(&torch);
    atomic_store_explicit(&handle, known, memory_order_release);
    return known;
}

static _Atomic(struct rk_header *) noted_in;

/* Once PyTorch is loaded, notes which rows of the table it does not have. */
static void note_missing(void)
{
    struct rk_header *header = atomic_load(&rk_state);
    if (header == NULL || atomic_load(&noted_in) == header)
        return;
    void *handle = torch_handle();
    if (handle == NULL)
        return;
    uint64_t missing[RK_MISSING_WORDS] = {0};
    for (int i = 0; i < RK_HOOK_COUNT; i++)
        if (strcmp(rk_hook_rows[i].platform, "cpu") == 0 &&
            look_in(handle, (enum rk_hook_id)i) == 0)
            missing[i / 64] |= UINT64_C(1) << i % 64;
    for (int i = 0; i < RK_MISSING_WORDS; i++)
        atomic_fetch_or(&header->missing[i], missing[i]);
    atomic_fetch_or(&header->platforms, 1u << RK_PLATFORM_CPU);
    atomic_store(&noted_in, header);
}

/* Tried, never waited for: whoever finds it taken adds the entry on its next call. */
static atomic_flag adding = ATOMIC_FLAG_INIT;

static void remember(enum rk_hook_id hook, uintptr_t low, uintptr_t high, uintptr_t function)
{
    if (atomic_flag_test_and_set(&adding))
        return;
    for (int i = 0; i < RK_KNOWN_CALLERS; i++) {
        struct rk_original *entry = &rk_originals[hook][i];
        if (atomic_load_explicit(&entry->function, memory_order_relaxed) != 0) {
            if (entry->low == low)
                break;
            continue;
        }
        entry->low = low;
        entry->high = high;
        atomic_store_explicit(&entry->function, function, memory_order_release);
        break;
    }
    atomic_flag_clear(&adding);
}

uintptr_t rk_find_original(enum rk_hook_id hook, uintptr_t caller)
{
    for (int i = 1; i < RK_KNOWN_CALLERS; i++) {
        struct rk_original *entry = &rk_originals[hook][i];
        uintptr_t function = atomic_load_explicit(&entry->function, memory_order_acquire);
        if (function != 0 && caller - entry->low < entry->high - entry->low)
            return function;
    }
    int saved = errno;
    struct object object = {.address = caller};
    int known = dl_iterate_phdr(match_object, &object);
    uintptr_t function = (uintptr_t)dlsym(RTLD_NEXT, rk_hook_rows[hook].symbol);
    if (function == 0 && known)
        function = look_in(open_loaded(&object), hook);
    if (function == 0)
        function = look_in(torch_handle(), hook);
    if (function == 0) {
        struct rk_header *header = atomic_load(&rk_state);
        if (header != NULL)
            atomic_fetch_add(&header->unresolved, 1);
    } else if (known) {
        remember(hook, object.low, object.high, function);
    }
    note_missing();
    dlerror(); /* our failed look-ups are nobody else's business */
    errno = saved;
    return function;
}

void rk_resolve_after_fork(void)
{
    atomic_flag_clear(&adding);
    atomic_store(&noted_in, NULL);
}
