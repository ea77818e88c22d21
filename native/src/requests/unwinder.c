/* Walks the stack of the calling thread, in a signal handler if need be.
 *
 * libgcc's unwinder finds unwind tables in one of two ways. The old one is dl_iterate_phdr, which
 * takes the loader's lock: a thread interrupted inside dlopen holds that lock and would wait for
 * itself for ever. Since GCC 12 with glibc 2.35 it is _dl_find_object, which takes no lock and is
 * documented as async-signal-safe. This library carries its own copy of libgcc's unwinder
 * (-static-libgcc), so which way it goes is settled when it is linked, and the copy's list of
 * frames registered at run time, the one other thing behind a lock, is empty for ever. So: stacks
 * can be taken if, and only if, this very library imports _dl_find_object. */
#define _GNU_SOURCE
#include "unwinder.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <unwind.h>

struct walk {
    uintptr_t from;
    uintptr_t *addresses;
    int limit;
    int count;
    bool started;
    bool truncated;
};

/* Frames of the handler itself; more than this means that `from` was missed. */
enum { MAX_OWN_FRAMES = 8 };

static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *data)
{
    struct walk *walk = data;
    uintptr_t address = _Unwind_GetIP(context);
    if (address == 0)
        return _URC_END_OF_STACK;
    if (!walk->started && address == walk->from) {
        walk->started = true;
        walk->count = 0;
    }
    if (walk->count == walk->limit) {
        walk->truncated = true;
        return _URC_END_OF_STACK;
    }
    walk->addresses[walk->count++] = address;
    if (!walk->started && walk->count > MAX_OWN_FRAMES)
        walk->started = true;
    return _URC_NO_REASON;
}

int rk_unwind(uintptr_t from, uintptr_t *addresses, int limit, bool *truncated)
{
    struct walk walk = {.from = from, .addresses = addresses, .limit = limit};
    _Unwind_Backtrace(visit, &walk);
    *truncated = walk.truncated;
    return walk.count;
}

/* Whether the undefined symbols of this library name `wanted`. In a GNU hash table the symbols
 * before `offset` are the undefined ones, which gives the table the length that ELF does not. */
static bool imports(const char *wanted)
{
    Dl_info info;
    struct link_map *map = NULL;
    static const char inside_this_library;
    if (dladdr1(&inside_this_library, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == NULL)
        return false;
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    const uint32_t *hash = NULL;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB)
            symbols = (const void *)entry->d_un.d_ptr;
        else if (entry->d_tag == DT_STRTAB)
            names = (const void *)entry->d_un.d_ptr;
        else if (entry->d_tag == DT_GNU_HASH)
            hash = (const void *)entry->d_un.d_ptr;
    }
    if (symbols == NULL || names == NULL || hash == NULL)
        return false;
    uint32_t offset = hash[1];
    for (uint32_t i = 1; i < offset; i++)
        if (symbols[i].st_shndx == SHN_UNDEF && strcmp(names + symbols[i].st_name, wanted) == 0)
            return true;
    return false;
}

bool rk_unwind_is_safe(void)
{
    if (!imports("_dl_find_object"))
        return false;
    /* The first walk sets up a table of register sizes under a pthread_once; have that behind us
     * before any handler runs. */
    uintptr_t addresses[4];
    bool truncated;
    return rk_unwind(0, addresses, 4, &truncated) > 0;
}
