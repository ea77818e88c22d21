#include "frames.h"

#include <string.h>

enum { PARTS = 3 };

/* The size of the frame that begins here. What stands in a stack was written by thread.c. */
static size_t frame_size(const uint8_t *frame)
{
    size_t size = 0;
    for (int part = 0; part < PARTS; part++) {
        uint32_t length;
        memcpy(&length, frame + size, sizeof length);
        size += sizeof length + length;
    }
    return size;
}

static bool keep(struct merge_context *context, uint32_t place, uint32_t number)
{
    void *numbers = context->frame_numbers;
    bool grown = memory_grow(&context->memory, &numbers, &context->frame_numbers_capacity,
                             (size_t)place + 1, sizeof *context->frame_numbers);
    context->frame_numbers = numbers;
    if (grown) {
        context->frame_numbers[place] = number;
    }
    return grown;
}

enum merge_status frames_of(struct merge_context *context, uint32_t stack, const uint32_t **numbers,
                            uint32_t *count)
{
    *numbers = NULL;
    *count = 0;
    if (stack >= context->stacks.count) {
        return MERGE_UNREADABLE;
    }
    const struct intern_entry *entry = &context->stacks.entries[stack];
    for (size_t at = 0; at < entry->size;) {
        size_t size = frame_size(entry->data + at);
        uint32_t number =
            intern(&context->distinct_frames, &context->memory, entry->data + at, size);
        if (number == INTERN_NONE || !keep(context, *count, number)) {
            return MERGE_OUT_OF_MEMORY;
        }
        (*count)++;
        at += size;
    }
    *numbers = context->frame_numbers;
    return MERGE_OK;
}
