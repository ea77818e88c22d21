#define _GNU_SOURCE
#include "row_names.h"

#include <stdbool.h>
#include <string.h>

#include "elf_object.h"
#include "table/hook_rows.h"

enum { PLACES = 1024 };

static uint32_t hashes[RK_HOOK_COUNT];
static int16_t places[PLACES]; /* row + 1 by hash, 0 = empty; the next place where it is taken */

void rk_row_names_configure(void)
{
    for (int row = 0; row < RK_HOOK_COUNT; row++) {
        hashes[row] = rk_gnu_hash(rk_hook_rows[row].symbol);
        uint32_t at = hashes[row] % PLACES;
        while (places[at] != 0)
            at = (at + 1) % PLACES;
        places[at] = (int16_t)(row + 1);
    }
}

/* Most names of most libraries are over here. */
static bool could_be_hooked(const char *name)
{
    switch (name[0]) {
    case '_':
        return strncmp(name, "_ZN4gloo", 8) == 0 || strncmp(name, "_ZN4c10d", 8) == 0;
    case 'c':
        return name[1] == 'u' || name[1] == 'b' || name[1] == 'g';
    case 'm':
        return name[1] == 'c';
    case 'h':
        return name[1] == 'i' && name[2] == 'p';
    case 'n':
        return name[1] == 'c' && name[2] == 'c';
    case 'a':
        return name[1] == 'c' && name[2] == 'l';
    case 'H':
        return name[1] == 'c' && name[2] == 'c';
    case 's':
    case 'd':
    case 'z':
        return name[1] == 'g' && name[2] == 'e';
    default:
        return false;
    }
}

int rk_row_named(const char *name)
{
    if (!could_be_hooked(name))
        return -1;
    uint32_t hash = rk_gnu_hash(name);
    for (uint32_t at = hash % PLACES; places[at] != 0; at = (at + 1) % PLACES) {
        int row = places[at] - 1;
        if (hashes[row] == hash && strcmp(rk_hook_rows[row].symbol, name) == 0)
            return row;
    }
    return -1;
}

uint32_t rk_row_hash(enum rk_hook_id hook)
{
    return hashes[hook];
}
