/* DWARF expressions, as linkage tables and signal frames need them. */
#ifndef RELKIT_DWARF_EXPRESSION_H
#define RELKIT_DWARF_EXPRESSION_H

#include "dwarf_reader.h"

/* Evaluates the reader's bytes with `initial` on the stack (NULL: nothing). `registers`: `count` of them,
 * by DWARF number. False where they cannot be evaluated. */
bool rk_evaluate(struct rk_reader *reader, const uintptr_t *registers, uint64_t count,
                 const uintptr_t *initial, uintptr_t *result);

#endif
