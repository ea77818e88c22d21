#include "merge.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "dump.h"
#include "fold.h"
#include "frames.h"
#include "lines.h"
#include "pack.h"
#include "relkit/plain_stat.h"

/* Tails save time only, so they may take this part of the budget. */
enum { TAIL_SHARE = 4 };

uint32_t rkm_abi(void)
{
    return RKM_ABI;
}

struct merge_context *rkm_new(uint64_t budget_bytes)
{
    struct merge_context *context = calloc(1, sizeof *context);
    if (context == NULL) {
        return NULL;
    }
    /* A secret seed: who writes dump files must not be able to make all of them collide. */
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) {
        seed = (uint64_t)(uintptr_t)context;
    }
    context->memory.left = budget_bytes > SIZE_MAX ? SIZE_MAX : (size_t)budget_bytes;
    context->tail_room = context->memory.left / TAIL_SHARE;
    context->texts.seed = seed;
    context->stacks.seed = seed;
    context->distinct_frames.seed = seed;
    context->tails[NATIVE].bytes.seed = seed;
    context->tails[PYTHON].bytes.seed = seed;
    context->tallies.seed = seed;
    return context;
}

void rkm_free(struct merge_context *context)
{
    if (context == NULL) {
        return;
    }
    for (int language = NATIVE; language <= PYTHON; language++) {
        intern_release(&context->tails[language].bytes);
        free(context->tails[language].meanings);
        free(context->tails[language].guesses);
        free(context->threads[language].items);
    }
    intern_release(&context->texts);
    intern_release(&context->stacks);
    intern_release(&context->distinct_frames);
    tally_release(&context->tallies);
    memory_release(&context->memory);
    free(context->frame_numbers);
    free(context->notes);
    free(context->order);
    free(context->taken);
    free(context->canonical);
    free(context->tail);
    free(context->file);
    free(context);
}

int32_t rkm_add(struct merge_context *context, const uint8_t *data, uint64_t size, const char *name,
                struct merge_head *head)
{
    *head = (struct merge_head){.rank = -1, .status = MERGE_OUT_OF_MEMORY};
    if (context->out_of_memory) {
        return head->status;
    }
    enum merge_status status = size > MAX_FILE_BYTES
                                   ? MERGE_MALFORMED
                                   : dump_read(context, data, (size_t)size, name, head);
    head->status = (int32_t)status;
    context->out_of_memory = status == MERGE_OUT_OF_MEMORY;
    return head->status;
}

/* Read a whole file into the context's buffer. */
static enum merge_status load(struct merge_context *context, int file, size_t *size)
{
    struct stat facts;
    if (rk_fstat(file, &facts) != 0) {
        return MERGE_UNREADABLE;
    }
    if (!S_ISREG(facts.st_mode)) {
        return MERGE_NOT_REGULAR;
    }
    if (facts.st_size > MAX_FILE_BYTES) {
        return MERGE_MALFORMED;
    }
    *size = 0;
    /* One byte more than the file has, so that the end shows without a further grown buffer. */
    size_t wanted = (size_t)facts.st_size + 1;
    for (;;) {
        void *buffer = context->file;
        bool grown = memory_grow(&context->memory, &buffer, &context->file_capacity, wanted, 1);
        context->file = buffer;
        if (!grown) {
            return MERGE_OUT_OF_MEMORY;
        }
        ssize_t got = read(file, context->file + *size, context->file_capacity - *size);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return MERGE_UNREADABLE;
        }
        if (got == 0) {
            return MERGE_OK;
        }
        *size += (size_t)got;
        if (*size > MAX_FILE_BYTES) {
            return MERGE_MALFORMED;
        }
        wanted = *size + 1;
    }
}

static void read_one(struct merge_context *context, int folder, const char *name,
                     struct merge_head *head)
{
    *head = (struct merge_head){.rank = -1, .status = MERGE_UNREADABLE};
    /* O_NONBLOCK: opening a named pipe that someone left in the folder must not wait. */
    int file = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) {
        return;
    }
    size_t size = 0;
    enum merge_status status = load(context, file, &size);
    close(file);
    if (status == MERGE_OK) {
        rkm_add(context, context->file, size, name, head);
    } else {
        head->status = (int32_t)status;
    }
}

void rkm_read(struct merge_context *context, int folder, const char *names, uint32_t count,
              struct merge_head *heads)
{
    for (uint32_t i = 0; i < count; i++) {
        read_one(context, folder, names, &heads[i]);
        names += strlen(names) + 1;
    }
}

uint32_t rkm_item_count(const struct merge_context *context)
{
    return context->tallies.count;
}

void rkm_item(const struct merge_context *context, uint32_t index, struct rkm_item *item)
{
    *item = (struct rkm_item){.first = INTERN_NONE, .second = INTERN_NONE};
    if (index >= context->tallies.count) {
        return;
    }
    const struct tally *tally = &context->tallies.items[index];
    item->kind = tally->key.kind;
    item->role = tally->key.role;
    item->fallback = tally->key.fallback;
    item->native_name = tally->key.native_name;
    item->python_name = tally->key.python_name;
    item->first = tally->key.first;
    item->second = tally->key.second;
    item->threads = tally->threads;
    item->interval_count = tally->used / 2;
    item->intervals = tally->intervals;
    item->name_count = tally->name_count;
    memcpy(item->names, tally->names, sizeof item->names);
}

const uint8_t *rkm_bytes(const struct merge_context *context, uint32_t table, uint32_t number,
                         uint32_t *size)
{
    const struct intern_table *entries =
        table == RKM_FRAMES ? &context->distinct_frames : &context->texts;
    if (number >= entries->count) {
        *size = 0;
        return NULL;
    }
    *size = entries->entries[number].size;
    return entries->entries[number].data;
}

int32_t rkm_stack(struct merge_context *context, uint32_t number, const uint32_t **frames,
                  uint32_t *count)
{
    return (int32_t)frames_of(context, number, frames, count);
}

int32_t rkm_pack(const int32_t *intervals, uint64_t count, uint8_t *bits, uint64_t size)
{
    return pack_intervals(intervals, count, bits, size);
}

uint64_t rkm_fold(const uint8_t *bits, uint64_t size, char separator, char *text, uint64_t room)
{
    return fold_bits(bits, size, FOLD_STRIDED, separator, text, room);
}

int32_t rkm_write_lines(int file, const struct rkm_lines *lines)
{
    return lines_write(file, lines);
}
