/* One thread of a dump file. */
#ifndef RELKIT_MERGE_THREAD_H
#define RELKIT_MERGE_THREAD_H

#include "context.h"
#include "wire.h"

/* Parse a thread message into `thread`; its stack and name become numbers of the context.
 * `place`: how many threads of this language the file has before it. */
enum merge_status thread_read(struct merge_context *context, struct wire_cursor cursor,
                              int language, size_t place, struct dump_thread *thread);

#endif
