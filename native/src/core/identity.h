/* Whose a process number is: one in another PID namespace, or on another host, is a stranger's. */
#ifndef RELKIT_IDENTITY_H
#define RELKIT_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Inode of the PID namespace whose numbers this process uses; 0 where /proc does not say. */
uint64_t rk_pid_namespace(void);

/* Whether the numbers in /proc are those that getpid() and getppid() give. */
bool rk_proc_is_own(void);

/* The process that a variable names as PID/START/NAMESPACE/BOOT, as relkit/process/identity.py writes
 * it: its number here, 0 where it is of another namespace or host, or where that cannot be known. */
pid_t rk_process_named(const char *variable);

/* Whether a variable names a process of another PID namespace, or one of which that is not known. */
bool rk_is_elsewhere(const char *variable);

#endif
