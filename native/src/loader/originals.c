#include "originals.h"

#include <errno.h>
#include <stddef.h>

#include "platforms.h"

_Atomic uintptr_t rk_originals[RK_HOOK_COUNT][RK_ENTRIES];
_Atomic uint32_t rk_unloads;

static const rk_entry_table *table;

static struct {
    _Atomic uintptr_t function;
    _Atomic bool loaded; /* in an object that could be unloaded */
    _Atomic bool gone;
} assigned[RK_HOOK_COUNT][RK_ENTRIES];

void rk_originals_configure(const rk_entry_table *entries)
{
    table = entries;
}

static int claim(enum rk_hook_id hook, uintptr_t function)
{
    for (int i = 0; i < RK_ENTRIES; i++)
        if (atomic_load(&assigned[hook][i].function) == function)
            return i;
    for (int i = 0; i < RK_ENTRIES; i++) {
        uintptr_t none = 0;
        if (atomic_compare_exchange_strong(&assigned[hook][i].function, &none, function))
            return i;
    }
    for (int i = 0; i < RK_ENTRIES; i++) {
        bool gone = true;
        if (!atomic_compare_exchange_strong(&assigned[hook][i].gone, &gone, false))
            continue;
        atomic_store(&assigned[hook][i].function, function);
        atomic_store(&rk_originals[hook][i], 0);
        return i;
    }
    return -1;
}

uintptr_t rk_entry_for(enum rk_hook_id hook, uintptr_t function, bool loaded)
{
    if (table == NULL || (*table)[hook][0] == NULL)
        return 0;
    int entry = claim(hook, function);
    if (entry < 0)
        return 0;
    atomic_store(&assigned[hook][entry].loaded, loaded);
    atomic_store(&assigned[hook][entry].gone, false);
    return (uintptr_t)(*table)[hook][entry];
}

bool rk_leads_elsewhere(enum rk_hook_id hook, uintptr_t function)
{
    for (int i = 0; i < RK_ENTRIES; i++) {
        uintptr_t known = atomic_load(&assigned[hook][i].function);
        if (known != 0 && known != function && !atomic_load(&assigned[hook][i].gone))
            return true;
    }
    return false;
}

void rk_originals_sweep(bool (*is_loaded)(uintptr_t function))
{
    atomic_fetch_add(&rk_unloads, 1);
    for (int hook = 0; hook < RK_HOOK_COUNT; hook++)
        for (int i = 0; i < RK_ENTRIES; i++) {
            uintptr_t function = atomic_load(&assigned[hook][i].function);
            if (function != 0 && atomic_load(&assigned[hook][i].loaded) && !is_loaded(function))
                atomic_store(&assigned[hook][i].gone, true);
        }
}

uintptr_t rk_first_call(enum rk_hook_id hook, int entry)
{
    int saved = errno;
    uintptr_t function = atomic_load(&assigned[hook][entry].function);
    rk_platform_seen(hook, function);
    atomic_store_explicit(&rk_originals[hook][entry], function, memory_order_release);
    errno = saved;
    return function;
}
