/* Test double: the simulated device's time. */
#define _GNU_SOURCE
#include "sim.h"

#include <errno.h>
#include <time.h>

enum { PAUSE_NS = 50000 };

uint64_t sim_now_ns(void)
{
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void sim_sleep_until(uint64_t time_ns)
{
    struct timespec until = {(time_t)(time_ns / 1000000000u), (long)(time_ns % 1000000000u)};
    if (sim_now_ns() >= time_ns)
        return;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

void sim_pause(void)
{
    struct timespec pause = {0, PAUSE_NS};
    nanosleep(&pause, NULL);
}
