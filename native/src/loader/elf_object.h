/* One loaded object as its dynamic section describes it. Reads mapped memory only: no file, no lock. */
#ifndef RELKIT_ELF_OBJECT_H
#define RELKIT_ELF_OBJECT_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rk_elf {
    uintptr_t base, low, high;       /* load bias; first and last address + 1 of its segments */
    uintptr_t relro_low, relro_high; /* whole pages that the loader makes read-only */
    const ElfW(Sym) * symbols;       /* NULL: nothing can be looked up */
    const char *names;
    const ElfW(Half) * versions; /* may be NULL */
    const uint32_t *gnu_hash;    /* may be NULL, as may sysv_hash */
    const uint32_t *sysv_hash;
    const ElfW(Rela) * relocations; /* of data; the first `relative` name no symbol */
    size_t relocation_count, relative;
    const ElfW(Rela) * jumps; /* of the procedure linkage table */
    size_t jump_count;
    bool rpath; /* DT_RPATH without DT_RUNPATH: what it loads inherits its search path */
};

/* Fills `elf`; to be called, and `elf` used, inside a dl_iterate_phdr callback, which keeps the object
 * mapped. */
void rk_elf_describe(struct rk_elf *elf, const struct dl_phdr_info *info);

static inline bool rk_elf_contains(const struct rk_elf *elf, uintptr_t address)
{
    return elf->low <= address && address < elf->high;
}

/* The hash under which .gnu.hash has a name. */
uint32_t rk_gnu_hash(const char *name);

/* The object's own definition of a name, by its default version; NULL where it has none. */
const ElfW(Sym) * rk_elf_definition(const struct rk_elf *elf, const char *name, uint32_t hash);

/* Whether the object defines the name, in any version, at this address. An indirect function
 * (STT_GNU_IFUNC) may have been resolved to any address of the object. */
bool rk_elf_defines_at(const struct rk_elf *elf, const char *name, uint32_t hash,
                       uintptr_t address);

/* Symbols 1 to this are those that the object imports (some may be its own); 0 where its tables do not
 * tell. */
size_t rk_elf_import_end(const struct rk_elf *elf);

#endif
