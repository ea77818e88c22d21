/* What the loader has mapped, asked without loading anything. */
#ifndef RELKIT_LOADED_H
#define RELKIT_LOADED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* For what may run before a sanitizer has set itself up. */
#define RK_PLAIN __attribute__((no_sanitize("address", "thread", "undefined")))

struct rk_object {
    uintptr_t low, high;
    char path[4096]; /* "" = the program itself */
};

/* The real dlsym: this library exports a dlsym of its own (hooks/symbol_lookup.c), which its own
 * look-ups must not go through. */
RK_PLAIN void *rk_find_real_dlsym(void);
void *rk_dlsym(void *handle, const char *name);

/* The real dlopen and dlclose, past our own. */
uintptr_t rk_real_dlopen(void);
void *rk_dlopen(const char *file, int mode);
int rk_dlclose(void *handle);

/* The loaded object that holds this address. */
bool rk_object_at(uintptr_t address, struct rk_object *object);

/* The loaded object whose file name is `name` (as in "libcudart"), then ".so" and a version; wheels
 * put a dash and a hash in between. */
bool rk_object_named(const char *name, struct rk_object *object);

/* File name of an object, without its folder. */
const char *rk_base_name(const struct rk_object *object);

/* `base` is such a file name. */
bool rk_is_library(const char *base, const char *name);

/* Whether an address is in this library. */
bool rk_is_own(uintptr_t address);

/* A handle on an object that is loaded already; NULL where it is not, or is the program itself. The
 * object stays until rk_dlclose. */
void *rk_open_loaded(const struct rk_object *object);

/* rk_object_named and rk_open_loaded. */
void *rk_loaded_library(const char *name);

/* Whether the object that holds this address defines a function of its own by that name. */
bool rk_defines(uintptr_t inside, const char *name);

/* Its address; 0 where it has none. Keeps nothing open. */
uintptr_t rk_function_beside(uintptr_t inside, const char *name);

/* The same in the library that is loaded under this name, as rk_object_named has it. */
uintptr_t rk_function_of(const char *library, const char *name);

#endif
