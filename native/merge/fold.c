/* Ranks as text: `0-3/7`, and `0-98:2` for three or more single ranks at equal steps. The same
 * text as that of fold_strided in relkit/ranks.py. */
#include "fold.h"

#include <endian.h>
#include <stdbool.h>
#include <string.h>

enum {
    WORD_BITS = 64,
    MIN_RUN = 3,
    MAX_DIGITS = 20,
    /* Separator, low, '-', high, ':', step. */
    MAX_ITEM = 1 + 3 * (MAX_DIGITS + 1),
};

_Static_assert((int)MAX_ITEM <= (int)FOLD_ITEM, "what fold.h promises");

struct bit_set {
    const uint8_t *bytes;
    size_t size;
};

struct text {
    char *start;
    size_t used;
    size_t room;
    enum fold_form form;
    char separator;
    bool is_full;
};

/* Single ranks at equal steps, the newest of which may go on. */
struct run {
    uint64_t first;
    uint64_t last;
    uint64_t step;
    size_t count;
};

/* The bits from here on; 0 for those behind the end. */
static uint64_t word_at(const struct bit_set *set, size_t at)
{
    uint64_t word = 0;
    if (set->size - at >= sizeof word) {
        memcpy(&word, set->bytes + at, sizeof word);
    } else {
        memcpy(&word, set->bytes + at, set->size - at);
    }
    return le64toh(word);
}

static void put_number(struct text *text, uint64_t number)
{
    size_t digits = 1;
    for (uint64_t power = 10; digits < MAX_DIGITS && number >= power; power *= 10) {
        digits++;
    }
    text->used += digits;
    char *at = text->start + text->used;
    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
}

/* `low`, `low-high` or `low-high:step`; step 0: there is none. */
static void put_item(struct text *text, uint64_t low, uint64_t high, uint64_t step)
{
    if (text->room - text->used < MAX_ITEM) {
        text->is_full = true;
        return;
    }
    if (text->used > 0) {
        text->start[text->used++] = text->separator;
    }
    put_number(text, low);
    if (high > low) {
        text->start[text->used++] = '-';
        put_number(text, high);
    }
    if (step > 0) {
        text->start[text->used++] = ':';
        put_number(text, step);
    }
}

static void end_run(struct text *text, struct run *run)
{
    if (run->count >= MIN_RUN) {
        put_item(text, run->first, run->last, run->step);
    } else if (run->count > 0) {
        put_item(text, run->first, run->first, 0);
        if (run->count > 1) {
            put_item(text, run->last, run->last, 0);
        }
    }
    run->count = 0;
}

static void add_single(struct text *text, struct run *run, uint64_t rank)
{
    if (run->count >= 2 && rank - run->last != run->step) {
        if (run->count >= MIN_RUN) {
            end_run(text, run);
        } else {
            /* Of two, the second may be the first of a run. */
            put_item(text, run->first, run->first, 0);
            run->first = run->last;
            run->count = 1;
        }
    }
    if (run->count == 0) {
        run->first = rank;
    } else {
        run->step = rank - run->last;
    }
    run->last = rank;
    run->count++;
}

static void add_interval(struct text *text, struct run *run, uint64_t low, uint64_t high)
{
    if (low == high && text->form == FOLD_STRIDED) {
        add_single(text, run, low);
        return;
    }
    end_run(text, run);
    put_item(text, low, high, 0);
}

uint64_t fold_bits(const uint8_t *bits, uint64_t size, enum fold_form form, char separator,
                   char *text, uint64_t room)
{
    struct bit_set set = {bits, (size_t)size};
    struct text out = {.start = text, .room = (size_t)room, .form = form, .separator = separator};
    struct run run = {0};
    uint64_t low = 0;
    uint64_t before = 0; /* the bit in front of the word */
    for (size_t at = 0; at < set.size && !out.is_full; at += sizeof before) {
        uint64_t word = word_at(&set, at);
        /* Where an interval begins, and one behind its end, in turn. */
        uint64_t changes = word ^ (word << 1 | before);
        for (; changes != 0; changes &= changes - 1) {
            uint64_t rank = (uint64_t)at * 8 + (unsigned)__builtin_ctzll(changes);
            if (word >> rank % WORD_BITS & 1) {
                low = rank;
            } else {
                add_interval(&out, &run, low, rank - 1);
            }
        }
        before = word >> (WORD_BITS - 1);
    }
    if (before != 0) {
        add_interval(&out, &run, low, (uint64_t)(set.size + 7) / 8 * WORD_BITS - 1);
    }
    end_run(&out, &run);
    return out.is_full ? UINT64_MAX : out.used;
}
