/* One dump file. */
#ifndef RELKIT_MERGE_DUMP_H
#define RELKIT_MERGE_DUMP_H

#include "context.h"

/* Parse one file's bytes and count its rank; on any error the tallies stay as they were. */
enum merge_status dump_read(struct merge_context *context, const uint8_t *data, size_t size,
                            const char *name, struct merge_head *head);

#endif
