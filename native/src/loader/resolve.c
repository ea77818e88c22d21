/* The loader binds a caller's symbol in the global scope first, which is what RTLD_NEXT searches,
 * and then in the caller's own scope: its object and what that depends on. PyTorch arrives by
 * dlopen(RTLD_LOCAL), so for it RTLD_NEXT finds nothing and the second step decides. Asking per
 * caller also keeps apart two BLAS libraries in one process, each called by its own user. */
#define _GNU_SOURCE
#include "resolve.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "core/recorder.h"
#include "loaded.h"
#include "own_symbols.h"
#include "platforms.h"
#include "table/hook_rows.h"

#define TORCH_LIBRARY "libtorch_cpu"

struct rk_original rk_originals[RK_HOOK_COUNT][RK_KNOWN_CALLERS];

/* Where each single call site goes, for rows with more callers than rk_originals has room for: every
 * kernel that Triton compiles is a library of its own. Entries are added and never changed. */
enum { SITES = 8192, SITE_TRIES = 8 };

static struct {
    _Atomic uintptr_t site; /* return address mixed with the row; taken first */
    _Atomic uintptr_t function;
} sites[SITES];

static uintptr_t site_key(enum rk_hook_id hook, uintptr_t caller)
{
    return caller ^ ((uintptr_t)hook + 1) << 52;
}

static unsigned site_at(uintptr_t key)
{
    return (unsigned)((uint64_t)key * UINT64_C(0x9e3779b97f4a7c15) >> 51);
}

static uintptr_t find_site(uintptr_t key)
{
    for (unsigned i = 0; i < SITE_TRIES; i++) {
        unsigned at = (site_at(key) + i) % SITES;
        uintptr_t known = atomic_load_explicit(&sites[at].site, memory_order_relaxed);
        if (known == key)
            return atomic_load_explicit(&sites[at].function, memory_order_acquire);
        if (known == 0)
            break;
    }
    return 0;
}

static void remember_site(uintptr_t key, uintptr_t function)
{
    for (unsigned i = 0; i < SITE_TRIES; i++) {
        unsigned at = (site_at(key) + i) % SITES;
        uintptr_t known = 0;
        if (atomic_compare_exchange_strong(&sites[at].site, &known, key) || known == key) {
            atomic_store_explicit(&sites[at].function, function, memory_order_release);
            return;
        }
    }
}

static void *torch_handle(void)
{
    static _Atomic(void *) handle;
    void *known = atomic_load_explicit(&handle, memory_order_acquire);
    if (known != NULL)
        return known;
    known = rk_loaded_library(TORCH_LIBRARY);
    atomic_store_explicit(&handle, known, memory_order_release);
    return known;
}

static _Atomic(struct rk_header *) noted_in;

/* Once PyTorch is loaded, notes which of its rows in the table it does not have. */
static void note_missing(void)
{
    struct rk_header *header = atomic_load(&rk_state);
    if (header == NULL || atomic_load(&noted_in) == header)
        return;
    void *handle = torch_handle();
    if (handle == NULL)
        return;
    for (int i = 0; i < RK_HOOK_COUNT; i++)
        if (strcmp(rk_hook_rows[i].platform, "cpu") == 0 &&
            rk_look_in(handle, (enum rk_hook_id)i) == 0)
            atomic_fetch_or(&header->missing[i / 64], UINT64_C(1) << i % 64);
    atomic_store(&noted_in, header);
}

/* Tried, never waited for: whoever finds it taken adds the entry on its next call. */
static atomic_flag adding = ATOMIC_FLAG_INIT;

/* False where there is no room. */
static bool remember(enum rk_hook_id hook, uintptr_t low, uintptr_t high, uintptr_t function)
{
    if (atomic_flag_test_and_set(&adding))
        return true;
    bool room = false;
    for (int i = 0; i < RK_KNOWN_CALLERS && !room; i++) {
        struct rk_original *entry = &rk_originals[hook][i];
        room = true;
        if (atomic_load_explicit(&entry->function, memory_order_relaxed) != 0) {
            room = entry->low == low;
            continue;
        }
        entry->low = low;
        entry->high = high;
        atomic_store_explicit(&entry->function, function, memory_order_release);
    }
    atomic_flag_clear(&adding);
    return room;
}

uintptr_t rk_peek_original(enum rk_hook_id hook, uintptr_t caller)
{
    struct rk_object object;
    uintptr_t function = (uintptr_t)rk_dlsym(RTLD_NEXT, rk_hook_rows[hook].symbol);
    if (function == 0 && rk_object_at(caller, &object))
        function = rk_look_in(rk_open_loaded(&object), hook);
    return function;
}

/* What was found behind each wrapper that was handed out. */
static _Atomic uintptr_t handed_out[RK_HOOK_COUNT];

bool rk_hand_out(enum rk_hook_id hook, uintptr_t function)
{
    uintptr_t known = 0;
    return atomic_compare_exchange_strong(&handed_out[hook], &known, function) || known == function;
}

/* Who calls through a pointer that somebody else looked up finds nothing by itself. */
static uintptr_t find_elsewhere(enum rk_hook_id hook)
{
    uintptr_t function = atomic_load_explicit(&handed_out[hook], memory_order_acquire);
    if (function == 0)
        function = rk_look_in(torch_handle(), hook);
    if (function == 0)
        function = rk_look_in(rk_platform_library(hook), hook);
    return function;
}

static uintptr_t find(enum rk_hook_id hook, uintptr_t caller)
{
    struct rk_object object;
    bool known = rk_object_at(caller, &object);
    uintptr_t function = rk_peek_original(hook, caller);
    if (function == 0)
        function = find_elsewhere(hook);
    if (function == 0) {
        struct rk_header *header = atomic_load(&rk_state);
        if (header != NULL)
            atomic_fetch_add(&header->unresolved, 1);
        return 0;
    }
    if (known && !remember(hook, object.low, object.high, function))
        remember_site(site_key(hook, caller), function);
    rk_platform_seen(hook, function);
    return function;
}

uintptr_t rk_find_original(enum rk_hook_id hook, uintptr_t caller)
{
    for (int i = 1; i < RK_KNOWN_CALLERS; i++) {
        struct rk_original *entry = &rk_originals[hook][i];
        uintptr_t known = atomic_load_explicit(&entry->function, memory_order_acquire);
        if (known != 0 && caller - entry->low < entry->high - entry->low)
            return known;
    }
    uintptr_t function = find_site(site_key(hook, caller));
    if (function != 0)
        return function;
    int saved = errno;
    function = find(hook, caller);
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
