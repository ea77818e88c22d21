/* Whose helper this process is. */
#ifndef RELKIT_ANCESTORS_H
#define RELKIT_ANCESTORS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Whether a process above this one, below `top`, records into `directory` for this rank. */
bool rk_ancestor_records(const char *directory, int32_t rank, pid_t top);

#endif
