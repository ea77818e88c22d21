/* A slot's payload in blocks, each with a checksum: copied in, copied out, or only checked. */
#ifndef RELKIT_SLOTS_BLOCKS_H
#define RELKIT_SLOTS_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

enum { BLOCK_BYTES = 1 << 20 };

enum transfer_kind { TRANSFER_SAVE = 0, TRANSFER_LOAD = 1 };

/* A part of the payload, and where it is in the process's memory. */
struct transfer_piece {
    uint8_t *memory;
    uint64_t offset;
    uint64_t size;
};

/* pieces: ascending by offset, without overlap. The gaps between them are filled with zeros by a
 * save, and only checked by a load. checksums: one for each block. */
struct transfer {
    uint8_t *payload;
    uint64_t size;
    uint32_t *checksums;
    const struct transfer_piece *pieces;
    uint64_t piece_count;
    uint32_t kind;
};

uint64_t block_count(uint64_t size);

/* Whether the pieces are in order and inside the payload. */
bool transfer_is_sound(const struct transfer *transfer);

/* Copy one block. False where a loaded block does not match its checksum. */
bool transfer_block(const struct transfer *transfer, uint64_t number);

#endif
