/* Where this library begins in a process: it diverts the calls of what the program was linked with. */
#define _GNU_SOURCE
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
    if (!rk_libc_is_glibc())
        return;
    rk_was_loaded();
    if (!rk_hook_is_disabled())
        rk_interpose_start(&entries);
}
