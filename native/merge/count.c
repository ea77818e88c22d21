/* Counting one rank: which native stack goes with which Python stack, and who has the pair. */
#include "count.h"

#include <stdlib.h>
#include <string.h>

static uint8_t role_of(const struct dump_thread *thread, int32_t pid)
{
    if (thread->role != ROLE_UNSET) {
        return thread->role;
    }
    /* The original tool writes no roles; the kernel's rule tells the main thread even so. */
    return pid != 0 && (int64_t)thread->lwp == (int64_t)pid ? ROLE_MAIN : ROLE_UNSET;
}

static bool count_pair(struct merge_context *context, int32_t rank, int32_t pid,
                       const struct dump_thread *native, const struct dump_thread *python)
{
    uint8_t role = native == NULL ? ROLE_OTHER : role_of(native, pid);
    uint8_t fallback = ROLE_OTHER;
    if ((role == ROLE_OTHER || role == ROLE_UNSET) && python != NULL) {
        fallback = role_of(python, pid);
    }
    if (role == ROLE_OTHER && fallback != ROLE_UNSET) {
        role = fallback;
        fallback = ROLE_OTHER;
    }
    struct tally_key key = {
        .first = native == NULL ? INTERN_NONE : native->stack,
        .second = python == NULL ? INTERN_NONE : python->stack,
        .native_name = role == ROLE_UNSET ? native->name : INTERN_NONE,
        .python_name = fallback == ROLE_UNSET ? python->name : INTERN_NONE,
        .kind = TALLY_THREAD,
        .role = role,
        .fallback = fallback,
    };
    struct tally *tally = tally_of(&context->tallies, &context->memory, key);
    if (tally == NULL || !tally_add_rank(tally, &context->memory, rank)) {
        return false;
    }
    tally->threads++;
    const struct dump_thread *both[2] = {native, python};
    for (int i = 0; i < 2; i++) {
        if (both[i] != NULL && context->texts.entries[both[i]->name].size > 0) {
            tally_add_name(tally, &context->texts, both[i]->name);
        }
    }
    return true;
}

static bool count_text(struct merge_context *context, uint8_t kind, uint32_t text, int32_t rank)
{
    struct tally_key key = {
        .first = text,
        .second = INTERN_NONE,
        .native_name = INTERN_NONE,
        .python_name = INTERN_NONE,
        .kind = kind,
    };
    struct tally *tally = tally_of(&context->tallies, &context->memory, key);
    return tally != NULL && tally_add_rank(tally, &context->memory, rank);
}

static int by_value(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Sort the Python threads by thread id, so that each native thread finds its own at once. */
static bool sort_python(struct merge_context *context)
{
    size_t count = context->threads[PYTHON].count;
    void *order = context->order;
    bool grown = memory_grow(&context->memory, &order, &context->order_capacity, count,
                             sizeof *context->order);
    context->order = order;
    void *taken = context->taken;
    grown = grown && memory_grow(&context->memory, &taken, &context->taken_capacity, 2 * count,
                                 sizeof *context->taken);
    context->taken = taken;
    if (!grown || count == 0) {
        return grown;
    }
    memset(context->taken, 0, 2 * count * sizeof *context->taken);
    for (size_t i = 0; i < count; i++) {
        context->order[i] = (uint64_t)context->threads[PYTHON].items[i].lwp << 32 | i;
    }
    qsort(context->order, count, sizeof *context->order, by_value);
    return true;
}

/* The first Python thread of this thread id that is not taken yet, NULL for none. */
static const struct dump_thread *take_python(struct merge_context *context, uint32_t lwp)
{
    size_t count = context->threads[PYTHON].count;
    uint64_t wanted = (uint64_t)lwp << 32;
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (context->order[middle] < wanted) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (lwp == 0 || low == count || context->order[low] >> 32 != lwp) {
        return NULL;
    }
    size_t next = low + context->taken[low];
    if (next == count || context->order[next] >> 32 != lwp) {
        return NULL;
    }
    context->taken[low]++;
    size_t place = (uint32_t)context->order[next];
    context->taken[count + place] = 1;
    return &context->threads[PYTHON].items[place];
}

bool dump_count(struct merge_context *context, int32_t rank, int32_t pid, uint32_t state)
{
    const struct thread_list *native = &context->threads[NATIVE];
    const struct thread_list *python = &context->threads[PYTHON];
    if (!sort_python(context) || !count_text(context, TALLY_STATE, state, rank)) {
        return false;
    }
    for (size_t i = 0; i < context->notes_count; i++) {
        if (!count_text(context, TALLY_NOTE, context->notes[i], rank)) {
            return false;
        }
    }
    for (size_t i = 0; i < native->count; i++) {
        const struct dump_thread *thread = &native->items[i];
        if (!count_pair(context, rank, pid, thread, take_python(context, thread->lwp))) {
            return false;
        }
    }
    for (size_t i = 0; i < python->count; i++) {
        if (context->taken[python->count + i] == 0 &&
            !count_pair(context, rank, pid, NULL, &python->items[i])) {
            return false;
        }
    }
    return true;
}
