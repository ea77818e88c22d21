/* One dump file's bytes: its threads, who it is, and what relkit noted in it. */
#include "dump.h"

#include <string.h>

#include "count.h"
#include "thread.h"
#include "wire.h"

struct text {
    const uint8_t *data;
    size_t size;
};

struct dump {
    int32_t pid;
    int32_t rank;
    bool has_rank;
    bool has_facts;
    int32_t world_size;
    int64_t captured_unix_ns;
    size_t engines;
    struct text state;
    struct text job;
};

static enum merge_status add_thread(struct merge_context *context, const struct wire_field *field)
{
    int language = field->number == 2 ? PYTHON : NATIVE;
    struct thread_list *list = &context->threads[language];
    struct dump_thread thread;
    enum merge_status status =
        thread_read(context, wire_message(field), language, list->count, &thread);
    if (status != MERGE_OK) {
        return status;
    }
    if (context->threads[NATIVE].count + context->threads[PYTHON].count == MAX_THREADS) {
        return MERGE_MALFORMED;
    }
    void *items = list->items;
    bool grown = memory_grow(&context->memory, &items, &list->capacity, list->count + 1,
                             sizeof *list->items);
    list->items = items;
    if (!grown) {
        return MERGE_OUT_OF_MEMORY;
    }
    list->items[list->count++] = thread;
    return MERGE_OK;
}

static enum merge_status add_note(struct merge_context *context, const struct wire_field *field)
{
    if (context->notes_count == MAX_TEXTS) {
        return MERGE_MALFORMED;
    }
    void *notes = context->notes;
    bool grown = memory_grow(&context->memory, &notes, &context->notes_capacity,
                             context->notes_count + 1, sizeof *context->notes);
    context->notes = notes;
    if (!grown) {
        return MERGE_OUT_OF_MEMORY;
    }
    uint32_t note = intern(&context->texts, &context->memory, field->data, field->size);
    if (note == INTERN_NONE) {
        return MERGE_OUT_OF_MEMORY;
    }
    context->notes[context->notes_count++] = note;
    return MERGE_OK;
}

static enum merge_status read_facts(struct merge_context *context, struct wire_cursor cursor,
                                    struct dump *dump)
{
    struct wire_field field;
    enum wire_result result;
    dump->has_facts = true;
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD) {
        bool number = field.number == 1 || field.number == 3 || field.number == 5;
        if (field.number <= 8 && field.wire != (number ? WIRE_VARINT : WIRE_BYTES)) {
            return MERGE_MALFORMED;
        }
        enum merge_status status = MERGE_OK;
        switch (field.number) {
        case 3:
            dump->world_size = (int32_t)(uint32_t)field.value;
            break;
        case 4:
            dump->job = (struct text){field.data, field.size};
            break;
        case 5:
            dump->captured_unix_ns = (int64_t)field.value;
            break;
        case 6:
            status = ++dump->engines > MAX_TEXTS ? MERGE_MALFORMED : MERGE_OK;
            break;
        case 7:
            status = add_note(context, &field);
            break;
        default:
            break;
        }
        if (status != MERGE_OK) {
            return status;
        }
    }
    return result == WIRE_BAD ? MERGE_MALFORMED : MERGE_OK;
}

static enum merge_status read_fields(struct merge_context *context, struct wire_cursor cursor,
                                     struct dump *dump)
{
    struct wire_field field;
    enum wire_result result;
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD) {
        bool number = field.number == 3 || field.number == 4;
        if ((field.number <= 11 || field.number == 1000) &&
            field.wire != (number ? WIRE_VARINT : WIRE_BYTES)) {
            return MERGE_MALFORMED;
        }
        enum merge_status status = MERGE_OK;
        switch (field.number) {
        case 1:
        case 2:
            status = add_thread(context, &field);
            break;
        case 3:
            dump->pid = (int32_t)(uint32_t)field.value;
            break;
        case 4:
            dump->rank = (int32_t)(uint32_t)field.value;
            dump->has_rank = true;
            break;
        case 11:
            dump->state = (struct text){field.data, field.size};
            break;
        case 1000:
            status = read_facts(context, wire_message(&field), dump);
            break;
        default:
            break;
        }
        if (status != MERGE_OK) {
            return status;
        }
    }
    return result == WIRE_BAD ? MERGE_MALFORMED : MERGE_OK;
}

/* Five to ten digits, as RRRRR-WWWWW.stacktrace has them; the rest of the name follows. */
static const char *read_digits(const char *at, int64_t *value)
{
    int digits = 0;
    *value = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (++digits > 10) {
            return NULL;
        }
        *value = *value * 10 + (*at - '0');
    }
    return digits >= 5 ? at : NULL;
}

static bool parse_name(const char *name, int64_t *rank, int64_t *world_size)
{
    const char *at = read_digits(name, rank);
    if (at == NULL || *at != '-') {
        return false;
    }
    at = read_digits(at + 1, world_size);
    return at != NULL && strcmp(at, ".stacktrace") == 0;
}

/* Who the file is: the header's word where it says it, else the name's. */
static bool identify(const struct dump *dump, const char *name, struct merge_head *head)
{
    int64_t name_rank = 0;
    int64_t name_world = 0;
    bool named = parse_name(name, &name_rank, &name_world);
    int64_t rank = dump->rank;
    int64_t world_size = dump->world_size;
    if (!dump->has_rank && !dump->has_facts) {
        if (!named) {
            return false;
        }
        rank = name_rank;
    }
    if (world_size == 0 && named) {
        world_size = name_world;
    }
    if (rank < 0 || rank > INT32_MAX || world_size < 0 || world_size > INT32_MAX ||
        (world_size != 0 && rank >= world_size)) {
        return false;
    }
    head->rank = (int32_t)rank;
    head->world_size = (int32_t)world_size;
    return true;
}

enum merge_status dump_read(struct merge_context *context, const uint8_t *data, size_t size,
                            const char *name, struct merge_head *head)
{
    struct dump dump = {0};
    *head = (struct merge_head){.rank = -1};
    context->threads[NATIVE].count = 0;
    context->threads[PYTHON].count = 0;
    context->notes_count = 0;
    context->frames = 0;
    if (size == 0 || size > MAX_FILE_BYTES) {
        return MERGE_MALFORMED;
    }
    enum merge_status status = read_fields(context, (struct wire_cursor){data, data + size}, &dump);
    if (status != MERGE_OK) {
        return status;
    }
    if (!identify(&dump, name, head)) {
        return MERGE_MALFORMED;
    }
    uint32_t state = intern(&context->texts, &context->memory, dump.state.data, dump.state.size);
    head->job = intern(&context->texts, &context->memory, dump.job.data, dump.job.size);
    head->captured_unix_ns = dump.captured_unix_ns;
    if (state == INTERN_NONE || head->job == INTERN_NONE ||
        !dump_count(context, head->rank, dump.pid, state)) {
        return MERGE_OUT_OF_MEMORY;
    }
    return MERGE_OK;
}
