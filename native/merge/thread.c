#include "thread.h"

#include <string.h>

/* Field numbers that differ between native and Python threads. */
struct layout {
    uint32_t lwp;
    uint32_t name;
    uint32_t frames;
    uint32_t last_number; /* fields 1..last_number that are not the name are varints */
    uint32_t frame_module;
    uint32_t frame_called; /* not 0: its caller's evaluation runs it too; 0: no such field */
};

static const struct layout LAYOUTS[2] = {
    [NATIVE] = {.lwp = 1, .name = 2, .frames = 3, .last_number = 1, .frame_module = 1002},
    [PYTHON] = {.lwp = 4,
                .name = 3,
                .frames = 7,
                .last_number = 6,
                .frame_module = 3,
                .frame_called = 1002},
};

static const char *const ROLES[ROLE_COUNT] = {"main",    "autograd", "communication", "loader",
                                              "compute", "watchdog", "other"};

struct span {
    const uint8_t *data;
    size_t size;
};

static uint8_t role_number(struct span text)
{
    if (text.size == 0) {
        return ROLE_UNSET;
    }
    for (uint8_t role = 0; role < ROLE_COUNT; role++) {
        if (strlen(ROLES[role]) == text.size && memcmp(ROLES[role], text.data, text.size) == 0) {
            return role;
        }
    }
    return ROLE_OTHER;
}

static bool append(struct merge_context *context, size_t *used, struct span text)
{
    uint32_t size = (uint32_t)text.size;
    void *buffer = context->canonical;
    bool grown = memory_grow(&context->memory, &buffer, &context->canonical_capacity,
                             *used + sizeof size + text.size, 1);
    context->canonical = buffer;
    if (!grown) {
        return false;
    }
    memcpy(context->canonical + *used, &size, sizeof size);
    *used += sizeof size;
    if (text.size > 0) {
        memcpy(context->canonical + *used, text.data, text.size);
        *used += text.size;
    }
    return true;
}

static enum merge_status read_frame(struct merge_context *context, struct wire_cursor cursor,
                                    const struct layout *layout, size_t *used)
{
    struct span func = {NULL, 0};
    struct span source = {NULL, 0};
    uint8_t called = 0;
    struct wire_field field;
    enum wire_result result;
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD) {
        uint32_t number = field.number;
        if (number <= 3 || number == 1000 || number == layout->frame_module) {
            if (field.wire != WIRE_BYTES) {
                return MERGE_MALFORMED;
            }
            if (number == 1) {
                func = (struct span){field.data, field.size};
            } else if (number == 2) {
                source = (struct span){field.data, field.size};
            }
        } else if (number == 1001 || number == layout->frame_called) {
            if (field.wire != WIRE_VARINT) {
                return MERGE_MALFORMED;
            }
            if (number == layout->frame_called) {
                called = field.value != 0;
            }
        }
    }
    if (result == WIRE_BAD) {
        return MERGE_MALFORMED;
    }
    bool appended = append(context, used, func) && append(context, used, source) &&
                    append(context, used, (struct span){&called, called});
    return appended ? MERGE_OK : MERGE_OUT_OF_MEMORY;
}

/* Note which tail stands at this place, as the guess for the next file. */
static void keep_guess(struct merge_context *context, struct tail_table *tails, size_t place,
                       uint32_t number)
{
    if (place >= tails->guesses_count) {
        void *guesses = tails->guesses;
        bool grown = memory_grow(&context->memory, &guesses, &tails->guesses_capacity, place + 1,
                                 sizeof *tails->guesses);
        tails->guesses = guesses;
        if (!grown) {
            return;
        }
        while (tails->guesses_count <= place) {
            tails->guesses[tails->guesses_count++] = INTERN_NONE;
        }
    }
    tails->guesses[place] = number;
}

/* Whether the tail that is expected at this place is `leaf` bytes of context->canonical, then
 * `outer`. */
static bool guess_holds(const struct merge_context *context, const struct tail_table *tails,
                        size_t place, size_t leaf, struct span outer)
{
    if (place >= tails->guesses_count || tails->guesses[place] == INTERN_NONE) {
        return false;
    }
    const struct intern_entry *guess = &tails->bytes.entries[tails->guesses[place]];
    return guess->size == leaf + outer.size && memcmp(guess->data, context->canonical, leaf) == 0 &&
           (outer.size == 0 || memcmp(guess->data + leaf, outer.data, outer.size) == 0);
}

/* The same bytes in one piece; NULL where memory runs out. */
static struct span whole_tail(struct merge_context *context, size_t leaf, struct span outer)
{
    void *buffer = context->tail;
    bool grown =
        memory_grow(&context->memory, &buffer, &context->tail_capacity, leaf + outer.size, 1);
    context->tail = buffer;
    if (!grown) {
        return (struct span){NULL, 0};
    }
    memcpy(context->tail, context->canonical, leaf);
    if (outer.size > 0) {
        memcpy(context->tail + leaf, outer.data, outer.size);
    }
    return (struct span){context->tail, leaf + outer.size};
}

/* The number of a tail seen before; else INTERN_NONE, with its hash for keep_tail(). */
static uint32_t find_tail(struct merge_context *context, struct tail_table *tails, size_t place,
                          struct span tail, uint64_t *hash)
{
    *hash = intern_hash(tails->bytes.seed, tail.data, tail.size);
    uint32_t number = intern_find(&tails->bytes, *hash, tail.data, tail.size);
    if (number != INTERN_NONE) {
        keep_guess(context, tails, place, number);
    }
    return number;
}

/* Remember what a tail means. Where there is no room it is parsed again the next time. */
static void keep_tail(struct merge_context *context, struct tail_table *tails, uint64_t hash,
                      struct span tail, struct tail_meaning meaning)
{
    size_t cost = tail.size + sizeof(struct intern_entry) + 5 * sizeof(uint32_t);
    if (cost > context->tail_room) {
        return;
    }
    void *meanings = tails->meanings;
    bool grown = memory_grow(&context->memory, &meanings, &tails->capacity,
                             (size_t)tails->bytes.count + 1, sizeof *tails->meanings);
    tails->meanings = meanings;
    if (!grown) {
        return;
    }
    uint32_t number = intern_add(&tails->bytes, &context->memory, hash, tail.data, tail.size);
    if (number != INTERN_NONE) {
        tails->meanings[number] = meaning;
        context->tail_room -= cost;
    }
}

/* Everything of a thread message but its frames. False: a known field of the wrong type. */
static bool read_field(const struct wire_field *field, const struct layout *layout,
                       struct dump_thread *thread, struct span *name, struct span *role,
                       bool *known)
{
    uint32_t number = field->number;
    *known = true;
    if (number == layout->name || (number >= 1000 && number <= 1002)) {
        if (field->wire != WIRE_BYTES) {
            return false;
        }
        if (number == layout->name) {
            *name = (struct span){field->data, field->size};
        } else if (number == 1000) {
            *role = (struct span){field->data, field->size};
        }
    } else if (number <= layout->last_number) {
        if (field->wire != WIRE_VARINT) {
            return false;
        }
        if (number == layout->lwp) {
            thread->lwp = (uint32_t)field->value;
        }
    } else {
        *known = false;
    }
    return true;
}

enum merge_status thread_read(struct merge_context *context, struct wire_cursor cursor,
                              int language, size_t place, struct dump_thread *thread)
{
    const struct layout *layout = &LAYOUTS[language];
    struct tail_table *tails = &context->tails[language];
    struct span name = {NULL, 0};
    struct span role = {NULL, 0};
    struct span tail = {NULL, 0};
    uint64_t hash = 0;
    size_t frames = 0;
    size_t used = 0;
    bool only_frames = true;
    uint32_t stack = INTERN_NONE;

    *thread = (struct dump_thread){.stack = INTERN_NONE};
    for (;;) {
        struct wire_field field;
        enum wire_result result = wire_next(&cursor, &field);
        if (result == WIRE_END) {
            break;
        }
        if (result == WIRE_BAD) {
            return MERGE_MALFORMED;
        }
        if (field.number != layout->frames) {
            bool known;
            if (!read_field(&field, layout, thread, &name, &role, &known)) {
                return MERGE_MALFORMED;
            }
            only_frames = only_frames && (!known || tail.data == NULL);
            continue;
        }
        if (field.wire != WIRE_BYTES) {
            return MERGE_MALFORMED;
        }
        if (++frames > MAX_FRAMES) {
            return MERGE_MALFORMED;
        }
        enum merge_status status = read_frame(context, wire_message(&field), layout, &used);
        if (status != MERGE_OK) {
            return status;
        }
        if (tail.data != NULL) {
            continue;
        }
        struct span outer = {cursor.at, (size_t)(cursor.end - cursor.at)};
        uint32_t seen;
        if (guess_holds(context, tails, place, used, outer)) {
            seen = tails->guesses[place];
        } else {
            tail = whole_tail(context, used, outer);
            if (tail.data == NULL) {
                return MERGE_OUT_OF_MEMORY;
            }
            seen = find_tail(context, tails, place, tail, &hash);
        }
        if (seen != INTERN_NONE) {
            stack = tails->meanings[seen].stack;
            frames = tails->meanings[seen].frames;
            break;
        }
    }
    /* Before anything of it is kept: what a file costs is bounded by its frames. */
    context->frames += frames;
    if (context->frames > MAX_FILE_FRAMES) {
        return MERGE_MALFORMED;
    }
    if (stack == INTERN_NONE) {
        stack = intern(&context->stacks, &context->memory, context->canonical, used);
        if (stack == INTERN_NONE) {
            return MERGE_OUT_OF_MEMORY;
        }
        if (tail.data != NULL && only_frames) {
            keep_tail(context, tails, hash, tail,
                      (struct tail_meaning){.stack = stack, .frames = (uint32_t)frames});
        }
    }
    thread->stack = stack;
    thread->role = role_number(role);
    thread->name = intern(&context->texts, &context->memory, name.data, name.size);
    return thread->name == INTERN_NONE ? MERGE_OUT_OF_MEMORY : MERGE_OK;
}
