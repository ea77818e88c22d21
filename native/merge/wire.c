#include "wire.h"

static bool read_varint(struct wire_cursor *cursor, uint64_t *value)
{
    const uint8_t *at = cursor->at;
    uint64_t result = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (at == cursor->end) {
            return false;
        }
        uint8_t byte = *at++;
        /* The tenth byte has room for one bit only. */
        if (shift == 63 && byte > 1) {
            return false;
        }
        result |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            cursor->at = at;
            *value = result;
            return true;
        }
    }
    return false;
}

enum wire_result wire_next(struct wire_cursor *cursor, struct wire_field *field)
{
    uint64_t tag;
    uint64_t size;
    if (cursor->at == cursor->end) {
        return WIRE_END;
    }
    if (!read_varint(cursor, &tag) || tag >> 32 != 0 || tag >> 3 == 0) {
        return WIRE_BAD;
    }
    field->number = (uint32_t)(tag >> 3);
    field->wire = (uint32_t)(tag & 7);
    switch (field->wire) {
    case WIRE_VARINT:
        return read_varint(cursor, &field->value) ? WIRE_FIELD : WIRE_BAD;
    case WIRE_BYTES:
        if (!read_varint(cursor, &size)) {
            return WIRE_BAD;
        }
        break;
    case WIRE_FIXED64:
        size = 8;
        break;
    case WIRE_FIXED32:
        size = 4;
        break;
    default:
        return WIRE_BAD;
    }
    if (size > (uint64_t)(cursor->end - cursor->at)) {
        return WIRE_BAD;
    }
    field->data = cursor->at;
    field->size = (size_t)size;
    cursor->at += size;
    return WIRE_FIELD;
}
