#ifndef RELKIT_SAFE_READ_H
#define RELKIT_SAFE_READ_H

#include <stdbool.h>
#include <stddef.h>

/* Copies memory that may not be there; false instead of a crash. Slow (system calls): for first
 * looks at structures of another library. At most 4096 bytes. */
bool rk_safe_read(void *to, const void *from, size_t size);

#endif
