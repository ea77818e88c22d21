#ifndef RELKIT_CLOCK_H
#define RELKIT_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t rk_clock_ns(clockid_t clock)
{
    struct timespec now = {0, 0};
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
