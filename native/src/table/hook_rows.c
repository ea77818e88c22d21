#include "hook_rows.h"

const struct rk_hook rk_hook_rows[RK_HOOK_COUNT] = {
#define ROW(id, platform_, kind_, name_, required_)                                                \
    [RK_HOOK_##id] = {.kind = RK_##kind_,                                                          \
                      .required = required_,                                                       \
                      .name = name_,                                                               \
                      .platform = #platform_,                                                      \
                      .symbol = RK_SYMBOL_##id},
    RELKIT_HOOKS(ROW)
#undef ROW
};

_Static_assert((int)RK_HOOK_COUNT <= (int)RK_MAX_HOOKS, "the `missing` bitmap has one bit a hook");
