#ifndef RELKIT_HOOK_ROWS_H
#define RELKIT_HOOK_ROWS_H

#include "relkit/state_layout.h"
#include "table.h"

/* The table as the shared-memory file shows it to readers. */
extern const struct rk_hook rk_hook_rows[RK_HOOK_COUNT];

#endif
