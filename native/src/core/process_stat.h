/* What the kernel says of a process, read without the C library's streams. */
#ifndef RELKIT_PROCESS_STAT_H
#define RELKIT_PROCESS_STAT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Fields of /proc/PID/stat, as proc(5) counts them. */
enum { RK_STAT_PARENT = 4, RK_STAT_START_TICKS = 22 };

/* One number of /proc/PID/stat, of this process where pid is 0; 0 where there is no such process. */
uint64_t rk_process_stat(pid_t pid, int field);

/* Writes a number and a NUL behind the first `length` bytes of a text; at most 11 bytes.
 * Returns the new length. */
size_t rk_append_number(char *text, size_t length, unsigned value);

#endif
