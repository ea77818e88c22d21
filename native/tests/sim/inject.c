/* Test double: faults on request, see sim.h. */
#define _GNU_SOURCE
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fault {
    char kind[16];
    int rank; /* -1: every rank */
    int code;
    uint64_t number;
};

static struct fault stall, failure;

static void parse(struct fault *fault, const char *text)
{
    if (text == NULL)
        return;
    char copy[128] = "";
    strncpy(copy, text, sizeof copy - 1);
    char *rest = copy;
    char *word = strsep(&rest, ":");
    snprintf(fault->kind, sizeof fault->kind, "%.15s", word);
    fault->rank = -1;
    for (word = strsep(&rest, ":"); word != NULL; word = strsep(&rest, ":")) {
        char *value = strchr(word, '=');
        if (value == NULL)
            continue;
        *value++ = '\0';
        if (strcmp(word, "rank") == 0)
            fault->rank = atoi(value);
        else if (strcmp(word, "op") == 0)
            fault->number = strtoull(value, NULL, 10);
        else if (strcmp(word, "code") == 0)
            fault->code = atoi(value);
    }
}

__attribute__((constructor)) static void configure(void)
{
    parse(&stall, getenv("SIM_STALL"));
    parse(&failure, getenv("SIM_ERROR"));
}

static int own_rank(void)
{
    const char *text = getenv("RANK");
    return text != NULL ? atoi(text) : 0;
}

bool sim_stalls(const char *kind, int rank, uint64_t number)
{
    if (stall.kind[0] == '\0' || number != stall.number || strcmp(kind, stall.kind) != 0)
        return false;
    return stall.rank < 0 || stall.rank == (rank >= 0 ? rank : own_rank());
}

int sim_fails(const char *kind, uint64_t number)
{
    if (failure.kind[0] == '\0' || number != failure.number || strcmp(kind, failure.kind) != 0)
        return SIM_OK;
    return failure.rank < 0 || failure.rank == own_rank() ? failure.code : SIM_OK;
}
