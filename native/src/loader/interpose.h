/* Diverts the calls of hooked functions, whatever is loaded when: docs/hook-interposition.md. */
#ifndef RELKIT_INTERPOSE_H
#define RELKIT_INTERPOSE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "loaded.h"
#include "originals.h"

/* Diverts what is loaded now, which is what the program was linked with. */
void rk_interpose_start(const rk_entry_table *entries);

/* After a library was loaded or unloaded. Costs little where nothing has changed. */
void rk_interpose_update(void);

/* A load begins whose end nobody will tell: look at the next opportunities. */
void rk_interpose_expect(void);

extern _Atomic int rk_interpose_expected;

/* An opportunity. */
static inline RK_PLAIN void rk_interpose_look(void)
{
    if (__builtin_expect(atomic_load_explicit(&rk_interpose_expected, memory_order_relaxed) > 0, 0))
        rk_interpose_update();
}

/* What a library loads has the search path of its loader where that has a DT_RPATH. Some object other
 * than the program has one. */
bool rk_search_paths_are_inherited(void);

#endif
