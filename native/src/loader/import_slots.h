/* Where one object keeps the addresses of hooked functions that the loader gave it, and ours in their
 * place. */
#ifndef RELKIT_IMPORT_SLOTS_H
#define RELKIT_IMPORT_SLOTS_H

#include <stdbool.h>
#include <stddef.h>

#include "elf_object.h"

/* All that is loaded, in the order in which the loader searches. */
struct rk_loaded_objects {
    const struct rk_elf *object;
    size_t count;
    const struct rk_elf *own; /* this library */
    bool all_global; /* nothing was loaded by dlopen yet: the first definition is the one */
};

enum rk_import_state {
    RK_IMPORTS_NOTHING, /* of what is hooked */
    RK_IMPORTS_DIVERTED,
    RK_IMPORTS_OPEN, /* some address is not settled yet: look again later */
};

/* Diverts the object's slots to entries. What the loader has not bound, or bound to nothing, stays as
 * it is. Inside a dl_iterate_phdr callback. */
enum rk_import_state rk_divert_imports(const struct rk_elf *object,
                                       const struct rk_loaded_objects *loaded);

#endif
