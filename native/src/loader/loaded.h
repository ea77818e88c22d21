/* What the loader has mapped, asked without loading anything. */
#ifndef RELKIT_LOADED_H
#define RELKIT_LOADED_H

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

/* The loaded object that holds this address. */
bool rk_object_at(uintptr_t address, struct rk_object *object);

/* The loaded object whose file name is `name` (as in "libcudart"), then ".so" and a version; wheels
 * put a dash and a hash in between. */
bool rk_object_named(const char *name, struct rk_object *object);

/* File name of an object, without its folder. */
const char *rk_base_name(const struct rk_object *object);

/* `base` is such a file name. */
bool rk_is_library(const char *base, const char *name);

/* A handle on an object that is loaded already; NULL where it is not, or is the program itself. It
 * is never closed: what is found through it is kept for good, so the object must stay. */
void *rk_open_loaded(const struct rk_object *object);

/* rk_object_named and rk_open_loaded. */
void *rk_loaded_library(const char *name);

#endif
