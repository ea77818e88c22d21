#define _GNU_SOURCE
#include "identity.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINK_BYTES = 64, BOOT_BYTES = 64, BASE = 10 };

uint64_t rk_pid_namespace(void)
{
    static const char prefix[] = "pid:[";
    char name[LINK_BYTES];
    ssize_t length = readlink("/proc/self/ns/pid", name, sizeof name - 1);
    if (length < (ssize_t)sizeof prefix)
        return 0;
    name[length] = '\0';
    return strncmp(name, prefix, sizeof prefix - 1) == 0
               ? strtoull(name + sizeof prefix - 1, NULL, BASE)
               : 0;
}

bool rk_proc_is_own(void)
{
    char number[LINK_BYTES];
    ssize_t length = readlink("/proc/self", number, sizeof number - 1);
    if (length <= 0)
        return false;
    number[length] = '\0';
    return strtol(number, NULL, BASE) == getpid();
}

/* Whether `text` is this boot's id; another host has another one. */
static bool is_this_boot(const char *text)
{
    char boot[BOOT_BYTES];
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t length = read(file, boot, sizeof boot - 1);
    close(file);
    while (length > 0 && boot[length - 1] == '\n')
        length--;
    return length > 0 && strlen(text) == (size_t)length && memcmp(text, boot, (size_t)length) == 0;
}

pid_t rk_process_named(const char *variable)
{
    const char *at = getenv(variable);
    uint64_t numbers[3]; /* process, its start, its namespace */
    for (int i = 0; i < 3; i++) {
        char *end = NULL;
        if (at == NULL || *at < '0' || *at > '9')
            return 0;
        numbers[i] = strtoull(at, &end, BASE);
        if (*end != '/')
            return 0;
        at = end + 1;
    }
    bool is_here = numbers[2] != 0 && numbers[2] == rk_pid_namespace() && is_this_boot(at);
    return is_here && numbers[0] <= INT32_MAX ? (pid_t)numbers[0] : 0;
}

bool rk_is_elsewhere(const char *variable)
{
    const char *text = getenv(variable);
    return text != NULL && *text != '\0' && rk_process_named(variable) == 0;
}
