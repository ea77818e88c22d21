/* Distinct stacks as numbers of distinct frames. */
#ifndef RELKIT_MERGE_FRAMES_H
#define RELKIT_MERGE_FRAMES_H

#include <stdint.h>

#include "context.h"

/* The frames of one distinct stack, innermost first, by their number in context->distinct_frames; each
 * is three times (size, bytes): func, source and mark. `numbers` are valid until the next call.
 * MERGE_UNREADABLE: there is no such stack; MERGE_OUT_OF_MEMORY: they do not fit. */
enum merge_status frames_of(struct merge_context *context, uint32_t stack, const uint32_t **numbers,
                            uint32_t *count);

#endif
