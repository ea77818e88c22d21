#define _GNU_SOURCE
#include "loaded.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "elf_object.h"

typedef void *(*lookup_function)(void *, const char *);

struct search {
    uintptr_t address;
    const char *name;
    struct rk_object *object;
};

/* The version that dlsym carries: glibc 2.34 moved it into libc itself and gave it a new one. */
static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};

/* Weak: musl has none, and a program linked with it may inherit LD_PRELOAD from a shell. */
extern __typeof__(dlvsym) dlvsym __attribute__((weak));

static RK_PLAIN int match_dlsym(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    struct rk_elf elf;
    rk_elf_describe(&elf, info);
    if (rk_elf_contains(&elf, (uintptr_t)versions))
        return 0;
    const ElfW(Sym) *symbol = rk_elf_definition(&elf, "dlsym", rk_gnu_hash("dlsym"));
    if (symbol == NULL)
        return 0;
    *(void **)data = (void *)(elf.base + symbol->st_value);
    return 1;
}

RK_PLAIN void *rk_find_real_dlsym(void)
{
    void *found = NULL;
    if (dlvsym == NULL) {
        dl_iterate_phdr(match_dlsym, &found);
        return found;
    }
    for (size_t i = 0; found == NULL && i < sizeof versions / sizeof *versions; i++)
        found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    return found;
}

RK_PLAIN void *rk_dlsym(void *handle, const char *name)
{
    static _Atomic(uintptr_t) known;
    uintptr_t address = atomic_load_explicit(&known, memory_order_acquire);
    if (address == 0) {
        address = (uintptr_t)rk_find_real_dlsym();
        atomic_store_explicit(&known, address, memory_order_release);
    }
    return address != 0 ? ((lookup_function)address)(handle, name) : NULL;
}

static RK_PLAIN uintptr_t next_function(_Atomic uintptr_t *known, const char *name)
{
    uintptr_t function = atomic_load_explicit(known, memory_order_acquire);
    if (function == 0) {
        function = (uintptr_t)rk_dlsym(RTLD_NEXT, name);
        atomic_store_explicit(known, function, memory_order_release);
    }
    return function;
}

RK_PLAIN uintptr_t rk_real_dlopen(void)
{
    static _Atomic uintptr_t known;
    return next_function(&known, "dlopen");
}

void *rk_dlopen(const char *file, int mode)
{
    void *(*real)(const char *, int) = (void *(*)(const char *, int))rk_real_dlopen();
    return real != NULL ? real(file, mode) : NULL;
}

int rk_dlclose(void *handle)
{
    static _Atomic uintptr_t known;
    int (*real)(void *) = (int (*)(void *))next_function(&known, "dlclose");
    return real != NULL ? real(handle) : -1;
}

bool rk_is_library(const char *base, const char *name)
{
    size_t length = strlen(name);
    return strncmp(base, name, length) == 0 && (base[length] == '.' || base[length] == '-');
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

const char *rk_base_name(const struct rk_object *object)
{
    return base_of(object->path);
}

static int match(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    struct search *search = data;
    uintptr_t low = UINTPTR_MAX, high = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD)
            continue;
        uintptr_t from = info->dlpi_addr + segment->p_vaddr;
        low = from < low ? from : low;
        high = from + segment->p_memsz > high ? from + segment->p_memsz : high;
    }
    const char *path = info->dlpi_name != NULL ? info->dlpi_name : "";
    bool found = search->name != NULL ? rk_is_library(base_of(path), search->name)
                                      : low <= search->address && search->address < high;
    size_t length = strlen(path);
    if (!found || length >= sizeof search->object->path)
        return 0;
    memcpy(search->object->path, path, length + 1);
    search->object->low = low;
    search->object->high = high;
    return 1;
}

bool rk_object_at(uintptr_t address, struct rk_object *object)
{
    struct search search = {.address = address, .object = object};
    return dl_iterate_phdr(match, &search) != 0;
}

bool rk_object_named(const char *name, struct rk_object *object)
{
    struct search search = {.name = name, .object = object};
    return dl_iterate_phdr(match, &search) != 0;
}

bool rk_is_own(uintptr_t address)
{
    static _Atomic uintptr_t low, high;
    struct rk_object own;
    if (atomic_load_explicit(&high, memory_order_acquire) == 0 &&
        rk_object_at((uintptr_t)&low, &own)) {
        atomic_store(&low, own.low);
        atomic_store_explicit(&high, own.high, memory_order_release);
    }
    return atomic_load(&low) <= address && address < atomic_load(&high);
}

void *rk_open_loaded(const struct rk_object *object)
{
    return object->path[0] != '\0' ? rk_dlopen(object->path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
}

void *rk_loaded_library(const char *name)
{
    struct rk_object object;
    return rk_object_named(name, &object) ? rk_open_loaded(&object) : NULL;
}

struct definition {
    uintptr_t inside, function;
    const char *name, *library;
    bool defined;
};

static int define(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    struct definition *wanted = data;
    struct rk_elf elf;
    if (wanted->library != NULL &&
        !rk_is_library(base_of(info->dlpi_name != NULL ? info->dlpi_name : ""), wanted->library))
        return 0;
    rk_elf_describe(&elf, info);
    if (wanted->library == NULL && !rk_elf_contains(&elf, wanted->inside))
        return 0;
    const ElfW(Sym) *symbol = rk_elf_definition(&elf, wanted->name, rk_gnu_hash(wanted->name));
    wanted->defined = symbol != NULL;
    if (symbol != NULL && ELF64_ST_TYPE(symbol->st_info) != STT_GNU_IFUNC)
        wanted->function = elf.base + symbol->st_value;
    return 1;
}

bool rk_defines(uintptr_t inside, const char *name)
{
    struct definition wanted = {.inside = inside, .name = name};
    dl_iterate_phdr(define, &wanted);
    return wanted.defined;
}

uintptr_t rk_function_beside(uintptr_t inside, const char *name)
{
    struct definition wanted = {.inside = inside, .name = name};
    dl_iterate_phdr(define, &wanted);
    return wanted.function;
}

uintptr_t rk_function_of(const char *library, const char *name)
{
    struct definition wanted = {.library = library, .name = name};
    dl_iterate_phdr(define, &wanted);
    return wanted.function;
}
