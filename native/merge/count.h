/* What one dump adds to the tallies. */
#ifndef RELKIT_MERGE_COUNT_H
#define RELKIT_MERGE_COUNT_H

#include "context.h"

/* Count the parsed threads, state and notes of one rank. False where memory runs out. */
bool dump_count(struct merge_context *context, int32_t rank, int32_t pid, uint32_t state);

#endif
