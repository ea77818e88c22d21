/* The protobuf wire format, strict and bounded; the same rules as relkit/stacks/wire.py. */
#ifndef RELKIT_MERGE_WIRE_H
#define RELKIT_MERGE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* What is left of a message. */
struct wire_cursor {
    const uint8_t *at;
    const uint8_t *end;
};

/* One field: `value` of a varint; `data` and `size` of any other. */
struct wire_field {
    uint32_t number;
    uint32_t wire;
    uint64_t value;
    const uint8_t *data;
    size_t size;
};

enum wire_result { WIRE_END, WIRE_FIELD, WIRE_BAD };

/* Take the next field. WIRE_BAD: cut off, too long, a group, or field number 0. */
enum wire_result wire_next(struct wire_cursor *cursor, struct wire_field *field);

/* A length-delimited field's content as a message of its own. */
static inline struct wire_cursor wire_message(const struct wire_field *field)
{
    return (struct wire_cursor){field->data, field->data + field->size};
}

#endif
