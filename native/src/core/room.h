/* Room for a recorder: how many a folder holds, and space that is really there. */
#ifndef RELKIT_ROOM_H
#define RELKIT_ROOM_H

#include <stddef.h>

/* How many recorder files a folder holds; counting ends at `limit`. */
int rk_recorders_in(const char *directory, int limit);

/* Gives a file its whole size, so that no later write to a mapping of it can fail.
 * Returns 0, or an error number. */
int rk_reserve(int file, size_t size);

#endif
