/* Test double: what the device counts, and its trace: SIM_TRACE names a file that gets a line
 * "LABEL STREAM START_NS END_NS BYTES" for each piece of work, SIM_REPORT one that gets the counts at
 * the end of the process. */
#define _GNU_SOURCE
#include "sim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static _Atomic int64_t counts[SIM_COUNT_COUNT];
static _Atomic int trace_file = -1;
static const char *report_path;

__attribute__((constructor)) static void open_trace(void)
{
    const char *path = getenv("SIM_TRACE");
    report_path = getenv("SIM_REPORT");
    if (path != NULL && *path != '\0')
        atomic_store(&trace_file, open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
}

void sim_report_after_fork(void)
{
    report_path = NULL;
    atomic_store(&trace_file, -1);
}

void sim_count(enum sim_count what, int64_t change)
{
    atomic_fetch_add_explicit(&counts[what], change, memory_order_relaxed);
}

int64_t sim_counted(enum sim_count what)
{
    return atomic_load(&counts[what]);
}

void sim_trace(const char *label, int stream, uint64_t start_ns, uint64_t end_ns, uint64_t bytes)
{
    int file = atomic_load(&trace_file);
    char line[160];
    if (file < 0)
        return;
    int length = snprintf(line, sizeof line, "%s %d %llu %llu %llu\n", label, stream,
                          (unsigned long long)start_ns, (unsigned long long)end_ns,
                          (unsigned long long)bytes);
    if (write(file, line, (size_t)length) != length)
        sim_count(SIM_MISUSES, 1);
}

__attribute__((destructor)) static void write_report(void)
{
    FILE *file = report_path != NULL && *report_path != '\0' ? fopen(report_path, "we") : NULL;
    if (file == NULL)
        return;
    fprintf(file, "{\"events\": %lld, \"streams\": %lld, \"launches\": %lld, \"misuses\": %lld}\n",
            (long long)sim_counted(SIM_EVENTS), (long long)sim_counted(SIM_STREAMS),
            (long long)sim_counted(SIM_LAUNCHES), (long long)sim_counted(SIM_MISUSES));
    fclose(file);
}
