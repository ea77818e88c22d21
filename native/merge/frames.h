/* Distinct stacks as numbers of distinct frames. */
#ifndef RELKIT_MERGE_FRAMES_H
#define RELKIT_MERGE_FRAMES_H

#include <stdint.h>

#include "context.h"

/* The frames of one distinct stack, innermost first, by their number in context->frames; each frame
 * is three times (size, bytes): func, source and mark. `numbers` are valid until the next call. */
enum merge_status frames_of(struct merge_context *context, uint32_t stack, const uint32_t **numbers,
                            uint32_t *count);

#endif
