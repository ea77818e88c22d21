/* One thread of a dump file. */
#ifndef RELKIT_MERGE_THREAD_H
#define RELKIT_MERGE_THREAD_H

#include "context.h"
#include "wire.h"

/* Parse a thread message into `thread`; its stack and name become numbers of the context. */
enum merge_status thread_read(struct merge_context *context, struct wire_cursor cursor,
                              int language, struct dump_thread *thread);

#endif
