/* The same lines as those of folded_lines in relkit/stacks/folded.py: `a@x@0-3|4;b@y@0|1-4 1`.
 * A line is mostly rank sets, which can have 100 KB each at 100,000 ranks; frames share them. So
 * a line is written in pieces, and the text of a set is kept while there is room for it. */
#include "lines.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fold.h"

enum {
    MAX_EXACT_CHARS = 4096, /* as in relkit/stacks/folded.py */
    BUFFER_BYTES = 1 << 18,
    KEPT_BYTES = 16 << 20,
};

/* The text of one rank set: those who have the frame, `|`, those who have not. */
struct label {
    char *text;
    size_t size;
};

/* A frame on the way to the one in hand. */
struct piece {
    uint32_t name;
    uint32_t ranks;
    struct label label;
    bool is_own; /* the label goes with the piece */
};

struct writer {
    const struct rkm_lines *lines;
    int file;
    int error;
    char *buffer;
    size_t used;
    uint8_t *present;
    uint8_t *bits;
    char *side;
    size_t side_room;
    struct label *kept; /* by number of a set */
    size_t room_to_keep;
    struct piece *path;
    size_t depth;
};

static bool fail(struct writer *writer, int error)
{
    writer->error = error;
    return false;
}

static bool write_all(struct writer *writer, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t done = write(writer->file, data, size);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return fail(writer, done < 0 ? errno : EIO);
        }
        data += done;
        size -= (size_t)done;
    }
    return true;
}

static bool flush(struct writer *writer)
{
    size_t used = writer->used;
    writer->used = 0;
    return write_all(writer, writer->buffer, used);
}

static bool put(struct writer *writer, const char *data, size_t size)
{
    if (size > BUFFER_BYTES - writer->used && !flush(writer)) {
        return false;
    }
    if (size > BUFFER_BYTES) {
        return write_all(writer, data, size);
    }
    memcpy(writer->buffer + writer->used, data, size);
    writer->used += size;
    return true;
}

/* A set's bits; false for one that is not of the job. */
static bool spread(const struct rkm_lines *lines, uint32_t number, uint8_t *bits)
{
    uint64_t start = number > 0 ? lines->set_ends[number - 1] : 0;
    size_t size = (size_t)(lines->set_ends[number] - start);
    memset(bits, 0, (size_t)lines->rank_bytes);
    if (lines->set_is_bits[number]) {
        if (size > lines->rank_bytes) {
            return false;
        }
        memcpy(bits, lines->sets + start, size);
        return true;
    }
    for (size_t at = 0; at + 2 * sizeof(int32_t) <= size; at += 2 * sizeof(int32_t)) {
        int32_t ends[2];
        memcpy(ends, lines->sets + start + at, sizeof ends);
        if (ends[0] < 0 || (uint64_t)ends[1] >= 8 * lines->rank_bytes || ends[1] < ends[0]) {
            return false;
        }
        for (uint32_t rank = (uint32_t)ends[0]; rank <= (uint32_t)ends[1]; rank++) {
            if (rank % 8 == 0 && rank + 7 <= (uint32_t)ends[1]) {
                bits[rank / 8] = UINT8_MAX;
                rank += 7;
            } else {
                bits[rank / 8] |= (uint8_t)(1u << rank % 8);
            }
        }
    }
    return true;
}

/* Have `wanted` characters from `at` on, and one more. */
static bool make_room(struct writer *writer, size_t at, size_t wanted)
{
    if (writer->side_room - at > wanted) {
        return true;
    }
    char *grown = realloc(writer->side, at + wanted + 1);
    if (grown == NULL) {
        return fail(writer, ENOMEM);
    }
    writer->side = grown;
    writer->side_room = at + wanted + 1;
    return true;
}

/* Write `bits` as text into writer->side from `at` on. */
static bool fold_side(struct writer *writer, size_t at, size_t *size)
{
    size_t room = MAX_EXACT_CHARS + FOLD_ITEM; /* what does not fit is too long in any case */
    enum fold_form form = FOLD_EXACT;
    for (;;) {
        if (!make_room(writer, at, room)) {
            return false;
        }
        uint64_t used =
            fold_bits(writer->bits, writer->lines->rank_bytes, form, '/', writer->side + at, room);
        if (used <= (form == FOLD_EXACT ? MAX_EXACT_CHARS : room)) {
            *size = (size_t)used;
            return true;
        }
        room *= form == FOLD_EXACT ? 1 : 2;
        form = FOLD_STRIDED;
    }
}

static bool make_label(struct writer *writer, uint32_t number, struct label *label)
{
    if (!spread(writer->lines, number, writer->bits)) {
        return fail(writer, EINVAL);
    }
    size_t size = 0;
    size_t more = 0;
    if (!fold_side(writer, 0, &size)) {
        return false;
    }
    writer->side[size++] = '|';
    for (size_t i = 0; i < writer->lines->rank_bytes; i++) {
        writer->bits[i] = writer->present[i] & (uint8_t)~writer->bits[i];
    }
    if (!fold_side(writer, size, &more)) {
        return false;
    }
    size += more;
    label->text = malloc(size);
    if (label->text == NULL) {
        return fail(writer, ENOMEM);
    }
    memcpy(label->text, writer->side, size);
    label->size = size;
    return true;
}

/* Give the newest frame of the path the text of its ranks. */
static bool find_label(struct writer *writer, struct piece *piece)
{
    if (writer->depth > 1 && piece[-1].ranks == piece->ranks) {
        piece->label = piece[-1].label; /* a frame mostly has the ranks of the one that calls it */
        return true;
    }
    struct label *kept = &writer->kept[piece->ranks];
    if (kept->text == NULL) {
        if (!make_label(writer, piece->ranks, &piece->label)) {
            return false;
        }
        piece->is_own = piece->label.size > writer->room_to_keep;
        if (piece->is_own) {
            return true;
        }
        writer->room_to_keep -= piece->label.size;
        *kept = piece->label;
    }
    piece->label = *kept;
    return true;
}

static void leave(struct writer *writer, size_t depth)
{
    while (writer->depth > depth) {
        struct piece *piece = &writer->path[--writer->depth];
        if (piece->is_own) {
            free(piece->label.text);
        }
    }
}

static bool put_line(struct writer *writer)
{
    for (size_t i = 0; i < writer->depth; i++) {
        const struct piece *piece = &writer->path[i];
        uint64_t start = piece->name > 0 ? writer->lines->name_ends[piece->name - 1] : 0;
        size_t size = (size_t)(writer->lines->name_ends[piece->name] - start);
        if ((i > 0 && !put(writer, ";", 1)) || !put(writer, writer->lines->names + start, size) ||
            !put(writer, "@", 1) || !put(writer, piece->label.text, piece->label.size)) {
            return false;
        }
    }
    return put(writer, " 1\n", 3);
}

static bool put_frames(struct writer *writer)
{
    const struct rkm_lines *lines = writer->lines;
    for (uint64_t i = 0; i < lines->frame_count; i++) {
        const struct rkm_line_frame *frame = &lines->frames[i];
        if (frame->depth > writer->depth || frame->name >= lines->name_count ||
            frame->ranks >= lines->set_count) {
            return fail(writer, EINVAL);
        }
        leave(writer, frame->depth);
        struct piece *piece = &writer->path[writer->depth++];
        *piece = (struct piece){.name = frame->name, .ranks = frame->ranks};
        if (!find_label(writer, piece) || (frame->ends && !put_line(writer))) {
            return false;
        }
    }
    return flush(writer);
}

/* One more than the deepest frame has above it. */
static size_t path_room(const struct rkm_lines *lines)
{
    uint32_t deepest = 0;
    for (uint64_t i = 0; i < lines->frame_count; i++) {
        deepest = lines->frames[i].depth > deepest ? lines->frames[i].depth : deepest;
    }
    return (size_t)deepest + 1;
}

int32_t lines_write(int file, const struct rkm_lines *lines)
{
    struct writer writer = {.lines = lines, .file = file, .room_to_keep = KEPT_BYTES};
    /* One byte more: a job of no ranks has no bits, and calloc(0) may be NULL. */
    size_t bytes = (size_t)lines->rank_bytes + 1;
    writer.side_room = 4 * (MAX_EXACT_CHARS + FOLD_ITEM);
    writer.buffer = malloc(BUFFER_BYTES);
    writer.side = malloc(writer.side_room);
    writer.present = calloc(bytes, 1);
    writer.bits = calloc(bytes, 1);
    writer.kept = calloc((size_t)lines->set_count + 1, sizeof *writer.kept);
    writer.path = calloc(path_room(lines), sizeof *writer.path);
    if (writer.buffer == NULL || writer.side == NULL || writer.present == NULL ||
        writer.bits == NULL || writer.kept == NULL || writer.path == NULL) {
        writer.error = ENOMEM;
    } else if (lines->set_count == 0 || !spread(lines, 0, writer.present)) {
        writer.error = EINVAL;
    } else {
        put_frames(&writer);
        leave(&writer, 0);
        for (uint64_t i = 0; i < lines->set_count; i++) {
            free(writer.kept[i].text);
        }
    }
    free(writer.buffer);
    free(writer.side);
    free(writer.present);
    free(writer.bits);
    free(writer.kept);
    free(writer.path);
    return writer.error;
}
