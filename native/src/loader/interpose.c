/* The loader tells nobody when it has loaded something. So this library stands before dlopen, dlclose
 * and dlsym (hooks/symbol_lookup.c), and looks at what is new when they return, or soon after.
 *
 * All of it happens inside a dl_iterate_phdr callback: no object comes or goes meanwhile, and no two
 * threads are here at once. */
#define _GNU_SOURCE
#include "interpose.h"

#include <errno.h>
#include <link.h>
#include <string.h>

#include "elf_object.h"
#include "import_slots.h"
#include "row_names.h"

enum { MAX_OBJECTS = 4096, OPPORTUNITIES = 16 };

_Atomic int rk_interpose_expected;

static bool started;
static _Atomic bool inherited;
static struct rk_elf objects[MAX_OBJECTS];
static size_t object_count;
static unsigned long long adds_seen, subs_seen;
static bool open_slots;

/* Objects that are done with, by base address; a full table only costs time. */
static uintptr_t done[2 * MAX_OBJECTS];
static size_t done_count;

static size_t place_of(uintptr_t base)
{
    size_t at = (size_t)((uint64_t)base * UINT64_C(0x9e3779b97f4a7c15) >> 32) % (2 * MAX_OBJECTS);
    while (done[at] != 0 && done[at] != base + 1)
        at = (at + 1) % (2 * MAX_OBJECTS);
    return at;
}

static void note_done(uintptr_t base)
{
    if (done_count == MAX_OBJECTS)
        return;
    done_count++;
    done[place_of(base)] = base + 1;
}

static int describe(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    if (object_count == MAX_OBJECTS)
        return 1;
    rk_elf_describe(&objects[object_count], info);
    if (objects[object_count].rpath && object_count != 0)
        atomic_store(&inherited, true);
    object_count++;
    return 0;
}

static bool is_loaded(uintptr_t function)
{
    for (size_t i = 0; i < object_count; i++)
        if (rk_elf_contains(&objects[i], function))
            return true;
    return false;
}

static void look(bool all_global)
{
    object_count = 0;
    dl_iterate_phdr(describe, NULL);
    struct rk_loaded_objects loaded = {objects, object_count, NULL, all_global};
    for (size_t i = 0; i < object_count; i++)
        if (rk_elf_contains(&objects[i], (uintptr_t)&adds_seen))
            loaded.own = &objects[i];
    open_slots = false;
    for (size_t i = 0; i < object_count; i++) {
        if (done[place_of(objects[i].base)] != 0)
            continue;
        if (rk_divert_imports(&objects[i], &loaded) == RK_IMPORTS_OPEN)
            open_slots = true;
        else
            note_done(objects[i].base);
    }
}

static int update(struct dl_phdr_info *info, size_t size, void *all_global)
{
    (void)size;
    bool more = info->dlpi_adds != adds_seen, fewer = info->dlpi_subs != subs_seen;
    int expected = atomic_load(&rk_interpose_expected);
    if (!more && !fewer && !open_slots) {
        if (expected > 0)
            atomic_store(&rk_interpose_expected, expected - 1);
        return 1;
    }
    adds_seen = info->dlpi_adds;
    subs_seen = info->dlpi_subs;
    /* Another object may be where one was: nothing is known of any. */
    if (fewer && done_count != 0) {
        memset(done, 0, sizeof done);
        done_count = 0;
    }
    look(*(const bool *)all_global);
    if (fewer)
        rk_originals_sweep(is_loaded);
    if (expected > 0)
        atomic_store(&rk_interpose_expected, more && !open_slots ? 0 : expected - 1);
    return 1;
}

void rk_interpose_start(const rk_entry_table *entries)
{
    int saved = errno;
    bool all_global = true;
    rk_row_names_configure();
    rk_originals_configure(entries);
    started = true;
    dl_iterate_phdr(update, &all_global);
    errno = saved;
}

void rk_interpose_update(void)
{
    int saved = errno;
    bool all_global = false;
    if (started)
        dl_iterate_phdr(update, &all_global);
    errno = saved;
}

void rk_interpose_expect(void)
{
    atomic_store(&rk_interpose_expected, OPPORTUNITIES);
}

bool rk_search_paths_are_inherited(void)
{
    return !started || atomic_load(&inherited);
}
