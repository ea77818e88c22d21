/* Functions of libraries, told apart from this library's wrappers of the same name. */
#ifndef RELKIT_OWN_SYMBOLS_H
#define RELKIT_OWN_SYMBOLS_H

#include <stdint.h>

#include "table/table.h"

/* The row's symbol in this library, unless that is our wrapper; 0 where it is not. */
uintptr_t rk_look_in(void *handle, enum rk_hook_id hook);

#endif
