#define _GNU_SOURCE
#include "loaded.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

typedef void *(*lookup_function)(void *, const char *);

struct search {
    uintptr_t address;
    const char *name;
    struct rk_object *object;
};

/* The version that dlsym carries: glibc 2.34 moved it into libc itself and gave it a new one. */
static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};

RK_PLAIN void *rk_find_real_dlsym(void)
{
    void *found = NULL;
    for (size_t i = 0; found == NULL && i < sizeof versions / sizeof *versions; i++)
        found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    return found;
}

void *rk_dlsym(void *handle, const char *name)
{
    static _Atomic(uintptr_t) known;
    uintptr_t address = atomic_load_explicit(&known, memory_order_acquire);
    if (address == 0) {
        address = (uintptr_t)rk_find_real_dlsym();
        atomic_store_explicit(&known, address, memory_order_release);
    }
    return address != 0 ? ((lookup_function)address)(handle, name) : NULL;
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

void *rk_open_loaded(const struct rk_object *object)
{
    return object->path[0] != '\0' ? dlopen(object->path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
}

void *rk_loaded_library(const char *name)
{
    struct rk_object object;
    return rk_object_named(name, &object) ? rk_open_loaded(&object) : NULL;
}
