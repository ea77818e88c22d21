/* Which platforms the process uses, and which of them the hook may watch. */
#ifndef RELKIT_PLATFORMS_H
#define RELKIT_PLATFORMS_H

#include <stdbool.h>
#include <stdint.h>

#include "relkit/state_layout.h"
#include "table/table.h"

/* From RELKIT_HOOK_PLATFORMS, a comma-separated list; all where it is not set. */
void rk_platforms_configure(void);

extern _Atomic uint32_t rk_platforms_wanted; /* bit per enum rk_platform */

static inline bool rk_platform_wanted(enum rk_platform platform)
{
    return atomic_load_explicit(&rk_platforms_wanted, memory_order_relaxed) >> platform & 1;
}

/* By the row's name alone: librccl has NCCL's names, so its calls count for HIP only when seen. */
enum rk_platform rk_platform_of_row(enum rk_hook_id hook);

/* The platform whose library holds the function that a row's call reached. */
enum rk_platform rk_platform_of_call(enum rk_hook_id hook);

/* An original was found: notes the platform, and once per library which of its rows it lacks. */
void rk_platform_seen(enum rk_hook_id hook, uintptr_t function);

/* Sets a bit of header.hook_notes, also before there is a header. */
void rk_add_note(uint32_t bit);

/* Tells a new header what this process, or the one that it was forked from, has found. */
void rk_platforms_publish(struct rk_header *header);

#endif
