#define _GNU_SOURCE
#include "elf_object.h"

#include <string.h>
#include <unistd.h>

enum { VERSION_HIDDEN = 0x8000 };

/* glibc adds the load bias to the pointers of most dynamic sections, but not of all. */
static const void *pointer(const struct rk_elf *elf, uintptr_t value)
{
    return (const void *)(value < elf->base ? elf->base + value : value);
}

static void read_dynamic(struct rk_elf *elf, const ElfW(Dyn) * entry)
{
    bool rpath = false, runpath = false, rela = false;
    size_t relocation_bytes = 0, jump_bytes = 0;
    for (; entry->d_tag != DT_NULL; entry++) {
        uintptr_t value = (uintptr_t)entry->d_un.d_ptr;
        switch (entry->d_tag) {
        case DT_SYMTAB:
            elf->symbols = pointer(elf, value);
            break;
        case DT_STRTAB:
            elf->names = pointer(elf, value);
            break;
        case DT_VERSYM:
            elf->versions = pointer(elf, value);
            break;
        case DT_GNU_HASH:
            elf->gnu_hash = pointer(elf, value);
            break;
        case DT_HASH:
            elf->sysv_hash = pointer(elf, value);
            break;
        case DT_RELA:
            elf->relocations = pointer(elf, value);
            break;
        case DT_RELASZ:
            relocation_bytes = (size_t)value;
            break;
        case DT_RELACOUNT:
            elf->relative = (size_t)value;
            break;
        case DT_JMPREL:
            elf->jumps = pointer(elf, value);
            break;
        case DT_PLTRELSZ:
            jump_bytes = (size_t)value;
            break;
        case DT_PLTREL:
            rela = value == DT_RELA;
            break;
        case DT_RPATH:
            rpath = true;
            break;
        case DT_RUNPATH:
            runpath = true;
            break;
        default:
            break;
        }
    }
    elf->rpath = rpath && !runpath;
    elf->relocation_count = elf->relocations != NULL ? relocation_bytes / sizeof(ElfW(Rela)) : 0;
    elf->jump_count = elf->jumps != NULL && rela ? jump_bytes / sizeof(ElfW(Rela)) : 0;
    if (elf->names == NULL)
        elf->symbols = NULL;
}

void rk_elf_describe(struct rk_elf *elf, const struct dl_phdr_info *info)
{
    const ElfW(Dyn) *dynamic = NULL;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    memset(elf, 0, sizeof *elf);
    elf->base = info->dlpi_addr;
    elf->low = UINTPTR_MAX;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t from = info->dlpi_addr + segment->p_vaddr, to = from + segment->p_memsz;
        if (segment->p_type == PT_LOAD) {
            elf->low = from < elf->low ? from : elf->low;
            elf->high = to > elf->high ? to : elf->high;
        } else if (segment->p_type == PT_GNU_RELRO) {
            elf->relro_low = from / page * page;
            elf->relro_high = to / page * page;
        } else if (segment->p_type == PT_DYNAMIC) {
            dynamic = (const void *)from;
        }
    }
    if (dynamic != NULL)
        read_dynamic(elf, dynamic);
}

uint32_t rk_gnu_hash(const char *name)
{
    uint32_t hash = 5381;
    for (; *name != '\0'; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

static uint32_t sysv_hash(const char *name)
{
    uint32_t hash = 0;
    for (; *name != '\0'; name++) {
        hash = (hash << 4) + (unsigned char)*name;
        hash ^= hash >> 24 & 0xf0;
    }
    return hash & 0x0fffffff;
}

static bool is_function_called(const struct rk_elf *elf, size_t at, const char *name)
{
    const ElfW(Sym) *symbol = &elf->symbols[at];
    int type = ELF64_ST_TYPE(symbol->st_info);
    return symbol->st_shndx != SHN_UNDEF && symbol->st_value != 0 &&
           (type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE) &&
           strcmp(elf->names + symbol->st_name, name) == 0;
}

/* The next definition of the name after symbol `after` (0 = the first); 0 where there is none. */
static size_t next_by_gnu_hash(const struct rk_elf *elf, const char *name, uint32_t hash,
                               size_t after)
{
    uint32_t buckets = elf->gnu_hash[0], offset = elf->gnu_hash[1], words = elf->gnu_hash[2],
             shift = elf->gnu_hash[3];
    const ElfW(Addr) *bloom = (const void *)&elf->gnu_hash[4];
    const uint32_t *bucket = (const void *)&bloom[words];
    const uint32_t *chain = &bucket[buckets];
    enum { BITS = sizeof(ElfW(Addr)) * 8 };
    if (buckets == 0 || words == 0)
        return 0;
    ElfW(Addr) word = bloom[hash / BITS % words];
    if (!(word >> hash % BITS & word >> (hash >> shift) % BITS & 1))
        return 0;
    size_t at = bucket[hash % buckets];
    if (at < offset)
        return 0;
    for (;; at++) {
        uint32_t known = chain[at - offset];
        if (at > after && (known | 1) == (hash | 1) && is_function_called(elf, at, name))
            return at;
        if (known & 1)
            return 0;
    }
}

static size_t next_by_sysv_hash(const struct rk_elf *elf, const char *name, size_t after)
{
    uint32_t buckets = elf->sysv_hash[0];
    const uint32_t *bucket = &elf->sysv_hash[2], *chain = &bucket[buckets];
    bool passed = after == 0;
    if (buckets == 0)
        return 0;
    for (size_t at = bucket[sysv_hash(name) % buckets]; at != 0; at = chain[at]) {
        if (passed && is_function_called(elf, at, name))
            return at;
        passed = passed || at == after;
    }
    return 0;
}

static size_t next_definition(const struct rk_elf *elf, const char *name, uint32_t hash,
                              size_t after)
{
    if (elf->symbols == NULL)
        return 0;
    if (elf->gnu_hash != NULL)
        return next_by_gnu_hash(elf, name, hash, after);
    return elf->sysv_hash != NULL ? next_by_sysv_hash(elf, name, after) : 0;
}

const ElfW(Sym) * rk_elf_definition(const struct rk_elf *elf, const char *name, uint32_t hash)
{
    size_t at = next_definition(elf, name, hash, 0);
    while (at != 0 && elf->versions != NULL && elf->versions[at] & VERSION_HIDDEN)
        at = next_definition(elf, name, hash, at);
    return at != 0 ? &elf->symbols[at] : NULL;
}

bool rk_elf_defines_at(const struct rk_elf *elf, const char *name, uint32_t hash, uintptr_t address)
{
    for (size_t at = next_definition(elf, name, hash, 0); at != 0;
         at = next_definition(elf, name, hash, at)) {
        const ElfW(Sym) *symbol = &elf->symbols[at];
        if (elf->base + symbol->st_value == address ||
            ELF64_ST_TYPE(symbol->st_info) == STT_GNU_IFUNC)
            return true;
    }
    return false;
}

size_t rk_elf_import_end(const struct rk_elf *elf)
{
    if (elf->sysv_hash != NULL)
        return elf->sysv_hash[1];
    if (elf->gnu_hash == NULL)
        return 0;
    /* Linkers write any offset into a table that is empty. */
    const uint32_t *bucket =
        (const void *)((const ElfW(Addr) *)&elf->gnu_hash[4] + elf->gnu_hash[2]);
    for (uint32_t i = 0; i < elf->gnu_hash[0]; i++)
        if (bucket[i] != 0)
            return elf->gnu_hash[1];
    return 0;
}
