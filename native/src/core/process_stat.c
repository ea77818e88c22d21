#define _GNU_SOURCE
#include "process_stat.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STAT_LINE = 1024, STAT_PATH = 32 };

size_t rk_append_number(char *text, size_t length, unsigned value)
{
    char digits[16];
    size_t count = 0;
    do
        digits[count++] = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    while (count > 0)
        text[length++] = digits[--count];
    text[length] = '\0';
    return length;
}

/* Read with read(2): stdio would allocate, and may be interposed. */
uint64_t rk_process_stat(pid_t pid, int field)
{
    char line[STAT_LINE], path[STAT_PATH] = "/proc/";
    size_t length = strlen(path);
    if (pid == 0) {
        /* By its number, /proc of another PID namespace would show another process. */
        memcpy(path + length, "self", sizeof "self");
        length += strlen("self");
    } else {
        length = rk_append_number(path, length, (unsigned)pid);
    }
    memcpy(path + length, "/stat", sizeof "/stat");
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t count = read(file, line, sizeof line - 1);
    close(file);
    if (count <= 0)
        return 0;
    line[count] = '\0';
    /* The command name may hold spaces and brackets; the fields go on after the last bracket. */
    const char *at = strrchr(line, ')');
    for (int i = 2; at != NULL && i < field; i++)
        at = strchr(at + 1, ' ');
    return at != NULL ? strtoull(at + 1, NULL, 10) : 0;
}
