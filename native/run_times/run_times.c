#include "run_times.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { ABI = 1, LINE_BYTES = 96, SECOND_NS = 1000000000 };

uint32_t rkr_abi(void)
{
    return ABI;
}

int64_t rkr_rows(struct rkr_control *control)
{
    return atomic_load_explicit(&control->rows, memory_order_acquire);
}

static void read_one(int32_t file, int64_t *run_ns, int64_t *wait_ns)
{
    char line[LINE_BYTES];
    ssize_t length = pread(file, line, sizeof line - 1, 0);
    *run_ns = *wait_ns = -1;
    if (length <= 0 || line[0] < '0' || line[0] > '9')
        return;
    line[length] = '\0';
    char *end = NULL;
    *run_ns = strtoll(line, &end, 10);
    *wait_ns = strtoll(end, &end, 10);
}

void rkr_sample(struct rkr_control *control, const int32_t *files, int32_t count, int64_t *ring,
                int64_t ring_rows)
{
    for (int64_t row = 0; atomic_load(&control->stop) == 0; row++) {
        int64_t *words = ring + (row % ring_rows) * (1 + 2 * (int64_t)count);
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        words[0] = (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec;
        for (int32_t i = 0; i < count; i++)
            read_one(files[i], &words[1 + 2 * i], &words[2 + 2 * i]);
        atomic_store_explicit(&control->rows, row + 1, memory_order_release);
        int64_t period_ns = atomic_load(&control->period_ns);
        struct timespec pause = {(time_t)(period_ns / SECOND_NS), (long)(period_ns % SECOND_NS)};
        nanosleep(&pause, NULL);
    }
}
