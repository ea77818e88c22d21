/* Numbers as DWARF and .eh_frame write them. A read beyond the end, or of memory that is not there, makes
 * the reader `bad` and gives 0. */
#ifndef RELKIT_DWARF_READER_H
#define RELKIT_DWARF_READER_H

#include "checked_memory.h"

struct rk_reader {
    struct rk_checked_memory *memory;
    uintptr_t at, end;
    bool bad;
};

static inline uint64_t rk_read_number(struct rk_reader *reader, size_t size)
{
    uint64_t value = 0;
    if (reader->bad || reader->end - reader->at < size || reader->at > reader->end ||
        !rk_checked_read(reader->memory, reader->at, &value, size)) {
        reader->bad = true;
        return 0;
    }
    reader->at += size;
    return value;
}

static inline uint64_t rk_read_uleb(struct rk_reader *reader)
{
    uint64_t value = 0, byte;
    unsigned shift = 0;
    do {
        byte = rk_read_number(reader, 1);
        value |= shift < 64 ? (byte & 0x7f) << shift : 0;
        shift += 7;
    } while (byte & 0x80 && !reader->bad);
    return value;
}

static inline int64_t rk_read_sleb(struct rk_reader *reader)
{
    uint64_t value = 0, byte;
    unsigned shift = 0;
    do {
        byte = rk_read_number(reader, 1);
        value |= shift < 64 ? (byte & 0x7f) << shift : 0;
        shift += 7;
    } while (byte & 0x80 && !reader->bad);
    if (byte & 0x40 && shift < 64)
        value |= ~UINT64_C(0) << shift;
    return (int64_t)value;
}

/* A signed number of `size` bytes. */
static inline int64_t rk_read_signed(struct rk_reader *reader, size_t size)
{
    uint64_t value = rk_read_number(reader, size);
    unsigned unused = (unsigned)(64 - 8 * size);
    return (int64_t)(value << unused) >> unused;
}

/* An address by one of the DW_EH_PE_ encodings; `data` is what "relative to data" means. */
static inline uintptr_t rk_read_encoded(struct rk_reader *reader, unsigned encoding, uintptr_t data)
{
    enum { OMIT = 0xff, INDIRECT = 0x80, RELATIVE_PC = 0x10, RELATIVE_DATA = 0x30 };
    uintptr_t here = reader->at, value;
    if (encoding == OMIT)
        return 0;
    switch (encoding & 0x0f) {
    case 0x00:
    case 0x04:
    case 0x0c:
        value = (uintptr_t)rk_read_number(reader, 8);
        break;
    case 0x01:
        value = (uintptr_t)rk_read_uleb(reader);
        break;
    case 0x02:
        value = (uintptr_t)rk_read_number(reader, 2);
        break;
    case 0x03:
        value = (uintptr_t)rk_read_number(reader, 4);
        break;
    case 0x09:
        value = (uintptr_t)rk_read_sleb(reader);
        break;
    case 0x0a:
        value = (uintptr_t)rk_read_signed(reader, 2);
        break;
    case 0x0b:
        value = (uintptr_t)rk_read_signed(reader, 4);
        break;
    default:
        reader->bad = true;
        return 0;
    }
    switch (encoding & 0x70) {
    case 0:
        break;
    case RELATIVE_PC:
        value += here;
        break;
    case RELATIVE_DATA:
        value += data;
        break;
    default:
        reader->bad = true;
        return 0;
    }
    if (encoding & INDIRECT && !rk_checked_read(reader->memory, value, &value, sizeof value))
        reader->bad = true;
    return value;
}

#endif
