/* The hooked names, looked up the other way round: from a symbol's name to its row. */
#ifndef RELKIT_ROW_NAMES_H
#define RELKIT_ROW_NAMES_H

#include <stdint.h>

#include "table/table.h"

/* Hashes of all rows; before anything below, once. */
void rk_row_names_configure(void);

/* The row with this symbol, -1 for none. Quick with all other names. */
int rk_row_named(const char *name);

/* rk_gnu_hash of the row's symbol. */
uint32_t rk_row_hash(enum rk_hook_id hook);

#endif
