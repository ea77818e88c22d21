#define _GNU_SOURCE
#include "import_slots.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "originals.h"
#include "row_names.h"
#include "table/hook_rows.h"

#if defined(__x86_64__)
enum { JUMP_SLOT = R_X86_64_JUMP_SLOT, GLOB_DAT = R_X86_64_GLOB_DAT, WORD = R_X86_64_64 };
#elif defined(__aarch64__)
enum { JUMP_SLOT = R_AARCH64_JUMP_SLOT, GLOB_DAT = R_AARCH64_GLOB_DAT, WORD = R_AARCH64_ABS64 };
#elif defined(__riscv) && __riscv_xlen == 64
enum { JUMP_SLOT = R_RISCV_JUMP_SLOT, GLOB_DAT = -1, WORD = R_RISCV_64 };
#else
enum { JUMP_SLOT = -1, GLOB_DAT = -2, WORD = -3 }; /* nothing is hooked on other machines */
#endif

/* Symbols of the object at hand that have a row, by index. One scan at a time: the loader's lock. */
enum { PLACES = 1024 };

static struct {
    uint32_t symbol[PLACES]; /* index, 0 = empty */
    int16_t row[PLACES];
    uint32_t count;
} wanted;

static void want(size_t symbol, int row)
{
    uint32_t at = (uint32_t)symbol * 2654435761u % PLACES;
    if (wanted.count == PLACES / 2)
        return;
    while (wanted.symbol[at] != 0 && wanted.symbol[at] != symbol)
        at = (at + 1) % PLACES;
    wanted.count += wanted.symbol[at] == 0;
    wanted.symbol[at] = (uint32_t)symbol;
    wanted.row[at] = (int16_t)row;
}

static int wanted_row(uint32_t symbol)
{
    for (uint32_t at = symbol * 2654435761u % PLACES; wanted.symbol[at] != 0;
         at = (at + 1) % PLACES)
        if (wanted.symbol[at] == symbol)
            return wanted.row[at];
    return -1;
}

static void want_if_named(const struct rk_elf *object, size_t symbol)
{
    int row = rk_row_named(object->names + object->symbols[symbol].st_name);
    if (row >= 0)
        want(symbol, row);
}

static void want_named_by(const struct rk_elf *object, const ElfW(Rela) * first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ELF64_R_SYM(first[i].r_info) != 0)
            want_if_named(object, ELF64_R_SYM(first[i].r_info));
}

static bool find_wanted(const struct rk_elf *object)
{
    if (wanted.count != 0)
        memset(&wanted, 0, sizeof wanted);
    size_t end = rk_elf_import_end(object);
    if (end == 0) {
        want_named_by(object, object->jumps, object->jump_count);
        want_named_by(object, object->relocations, object->relocation_count);
        return wanted.count != 0;
    }
    for (size_t symbol = 1; symbol < end; symbol++)
        want_if_named(object, symbol);
    for (int row = 0; row < RK_HOOK_COUNT; row++) {
        const ElfW(Sym) *symbol =
            rk_elf_definition(object, rk_hook_rows[row].symbol, rk_row_hash((enum rk_hook_id)row));
        if (symbol != NULL)
            want((size_t)(symbol - object->symbols), row);
    }
    return wanted.count != 0;
}

static const struct rk_elf *object_at(const struct rk_loaded_objects *loaded, uintptr_t address)
{
    for (size_t i = 0; i < loaded->count; i++)
        if (rk_elf_contains(&loaded->object[i], address))
            return &loaded->object[i];
    return NULL;
}

/* What the loader will bind the name to at its first call; 0 where that is not certain. Which of
 * several definitions depends on scopes, which it shows to nobody. */
static uintptr_t will_be_bound_to(const struct rk_loaded_objects *loaded, enum rk_hook_id row)
{
    uintptr_t function = 0;
    for (size_t i = 0; i < loaded->count; i++) {
        const struct rk_elf *object = &loaded->object[i];
        const ElfW(Sym) *symbol =
            rk_elf_definition(object, rk_hook_rows[row].symbol, rk_row_hash(row));
        if (symbol == NULL)
            continue;
        if (function != 0 || ELF64_ST_TYPE(symbol->st_info) == STT_GNU_IFUNC)
            return 0;
        function = object->base + symbol->st_value;
        if (loaded->all_global)
            break;
    }
    return function;
}

/* The function that a slot leads to; 0 where it is none of which that can be said. *open: look again. */
static uintptr_t function_behind(const struct rk_elf *object,
                                 const struct rk_loaded_objects *loaded, const ElfW(Rela) * slot,
                                 enum rk_hook_id row, uintptr_t value, bool *open)
{
    const char *name = rk_hook_rows[row].symbol;
    const struct rk_elf *holder = object_at(loaded, value);
    if (holder == NULL) { /* not bound: a weak name without a definition, or still being loaded */
        *open = true;
        return 0;
    }
    if (holder == loaded->own)
        return 0;
    if (rk_elf_defines_at(holder, name, rk_row_hash(row), value))
        return value;
    /* Its own linkage table: bound at the first call. (The table of the program may also stand for
     * the function as a whole. It is that table's own slot that is diverted then.) */
    if (holder != object || (int)ELF64_R_TYPE(slot->r_info) != JUMP_SLOT)
        return 0;
    uintptr_t function = will_be_bound_to(loaded, row);
    *open = *open || function == 0;
    return function;
}

/* Written by the kernel, which refuses where the page is read-only: then the loader is done with the
 * object, and we may open the page for a moment. It must not be opened and closed before that. */
static bool write_protected(uintptr_t at, uintptr_t value, const int pipe_ends[2])
{
    uintptr_t copy = value;
    if (write(pipe_ends[1], &copy, sizeof copy) != sizeof copy)
        return false;
    if (read(pipe_ends[0], (void *)at, sizeof copy) == sizeof copy)
        return true;
    if (errno != EFAULT || read(pipe_ends[0], &copy, sizeof copy) != sizeof copy)
        return false;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *start = (void *)(at / page * page);
    if (mprotect(start, page, PROT_READ | PROT_WRITE) != 0)
        return false;
    __atomic_store_n((uintptr_t *)at, value, __ATOMIC_RELEASE);
    mprotect(start, page, PROT_READ);
    return true;
}

static bool write_slot(const struct rk_elf *object, uintptr_t at, uintptr_t value)
{
    if (at < object->relro_low || at >= object->relro_high) {
        __atomic_store_n((uintptr_t *)at, value, __ATOMIC_RELEASE);
        return true;
    }
    int pipe_ends[2];
    if (pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return false;
    bool written = write_protected(at, value, pipe_ends);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    return written;
}

static void divert_one(const struct rk_elf *object, const struct rk_loaded_objects *loaded,
                       const ElfW(Rela) * slot, bool *open)
{
    int type = (int)ELF64_R_TYPE(slot->r_info);
    int row = wanted_row((uint32_t)ELF64_R_SYM(slot->r_info));
    uintptr_t at = object->base + slot->r_offset;
    if (row < 0 || (type != JUMP_SLOT && type != GLOB_DAT && type != WORD) || at % sizeof at != 0 ||
        (type == WORD && slot->r_addend != 0))
        return;
    uintptr_t value = __atomic_load_n((uintptr_t *)at, __ATOMIC_ACQUIRE);
    uintptr_t function = function_behind(object, loaded, slot, (enum rk_hook_id)row, value, open);
    uintptr_t entry = function != 0 ? rk_entry_for((enum rk_hook_id)row, function, true) : 0;
    if (entry != 0 && !write_slot(object, at, entry))
        *open = true;
}

enum rk_import_state rk_divert_imports(const struct rk_elf *object,
                                       const struct rk_loaded_objects *loaded)
{
    if (object->symbols == NULL || object == loaded->own || !find_wanted(object))
        return RK_IMPORTS_NOTHING;
    bool open = false;
    for (size_t i = 0; i < object->jump_count; i++)
        divert_one(object, loaded, &object->jumps[i], &open);
    for (size_t i = object->relative; i < object->relocation_count; i++)
        divert_one(object, loaded, &object->relocations[i], &open);
    return open ? RK_IMPORTS_OPEN : RK_IMPORTS_DIVERTED;
}
