/* fstat without a symbol that only glibc 2.33 and later have: one build for older ones, too. */
#ifndef RELKIT_PLAIN_STAT_H
#define RELKIT_PLAIN_STAT_H

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel fills glibc's own struct stat on 64-bit x86 and Arm. */
static inline int rk_fstat(int file, struct stat *facts)
{
#if defined(__x86_64__) || defined(__aarch64__)
    return (int)syscall(SYS_fstat, file, facts);
#else
    return fstat(file, facts);
#endif
}

#endif
