/* Where this library begins in a process: it diverts the calls of what the program was linked with. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "lifecycle.h"
#include "loader/interpose.h"

/* Rows that are no wrappers of anything (marks, dlsym) have no entries. */
#define ENTRIES_OF(id, platform, kind, name, required)                                             \
    extern __attribute__((visibility("hidden"), weak)) char rk_entry_##id##_0[];                   \
    extern __attribute__((visibility("hidden"), weak)) char rk_entry_##id##_1[];                   \
    extern __attribute__((visibility("hidden"), weak)) char rk_entry_##id##_2[];                   \
    extern __attribute__((visibility("hidden"), weak)) char rk_entry_##id##_3[];
RELKIT_HOOKS(ENTRIES_OF)
#undef ENTRIES_OF

static const rk_entry_table entries = {
#define ENTRIES_OF(id, platform, kind, name, required)                                             \
    [RK_HOOK_##id] = {rk_entry_##id##_0, rk_entry_##id##_1, rk_entry_##id##_2, rk_entry_##id##_3},
    RELKIT_HOOKS(ENTRIES_OF)
#undef ENTRIES_OF
};

_Static_assert(RK_ENTRIES == 4, "one column an entry");

__attribute__((constructor)) static void begin(void)
{
    if (!rk_has_its_libc())
        return;
    rk_was_loaded();
    const char *disable = getenv("RELKIT_HOOK_DISABLE");
    if (disable == NULL || strcmp(disable, "1") != 0)
        rk_interpose_start(&entries);
}
