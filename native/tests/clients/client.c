#define _GNU_SOURCE
#include "client.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../sim/sim.h"

void expect_work(const char *name, uint64_t bytes, uint64_t flops, uint64_t length_ns)
{
    printf("{\"work\": \"%s\", \"bytes\": %llu, \"flops\": %llu, \"length_ns\": %llu}\n", name,
           (unsigned long long)bytes, (unsigned long long)flops, (unsigned long long)length_ns);
}

void expect_call(const char *name, uint64_t bytes)
{
    printf("{\"call\": \"%s\", \"bytes\": %llu}\n", name, (unsigned long long)bytes);
}

void expect_transfer(const char *name, const char *group, long seq, uint64_t bytes, int peer)
{
    printf(
        "{\"transfer\": \"%s\", \"group\": \"%s\", \"seq\": %ld, \"bytes\": %llu, \"peer\": %d}\n",
        name, group, seq, (unsigned long long)bytes, peer);
}

void expect_number(const char *name, int64_t value)
{
    printf("{\"%s\": %lld}\n", name, (long long)value);
}

void meet(void)
{
    char line[16];
    printf("{\"up\": %d}\n", (int)getpid());
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL)
        exit(71);
}

static int number(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text != NULL ? atoi(text) : otherwise;
}

int rank_number(void)
{
    return number("RANK", 0);
}

int rank_count(void)
{
    return number("WORLD_SIZE", 1);
}

static void write_out(const char *path, const void *bytes, size_t count)
{
    char fresh[512];
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *file = fopen(fresh, "w");
    if (file == NULL || fwrite(bytes, 1, count, file) != count || fclose(file) != 0 ||
        rename(fresh, path) != 0)
        exit(72);
}

void share(const char *path, void *bytes, size_t count)
{
    if (rank_number() == 0) {
        write_out(path, bytes, count);
        return;
    }
    struct timespec pause = {0, 1000000};
    FILE *file = fopen(path, "r");
    for (; file == NULL; file = fopen(path, "r"))
        nanosleep(&pause, NULL);
    if (fread(bytes, 1, count, file) != count)
        exit(73);
    fclose(file);
}

int64_t resident_bytes(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld %ld", &pages, &resident) != 2)
        exit(74);
    fclose(file);
    return (int64_t)resident * sysconf(_SC_PAGESIZE);
}

void tell_counts(void)
{
    printf("{\"events\": %lld, \"launches\": %lld, \"misuses\": %lld}\n",
           (long long)sim_counted(SIM_EVENTS), (long long)sim_counted(SIM_LAUNCHES),
           (long long)sim_counted(SIM_MISUSES));
}

int main(int count, char **arguments)
{
    for (const struct scene *scene = scenes; count > 1 && scene->name != NULL; scene++) {
        if (strcmp(scene->name, arguments[1]) == 0) {
            scene->play(arguments + 2);
            fflush(stdout);
            return 0;
        }
    }
    return 64;
}
