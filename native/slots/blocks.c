#include "blocks.h"

#include <string.h>

#include "crc32c.h"

/* The checksum of a strip is computed right after the copy, while the strip is in the cache. */
enum { STRIP_BYTES = 1 << 16 };

uint64_t block_count(uint64_t size)
{
    return size / BLOCK_BYTES + (size % BLOCK_BYTES != 0);
}

bool transfer_is_sound(const struct transfer *transfer)
{
    uint64_t end = 0;
    if (transfer->kind > TRANSFER_LOAD) {
        return false;
    }
    for (uint64_t i = 0; i < transfer->piece_count; i++) {
        const struct transfer_piece *piece = &transfer->pieces[i];
        if (piece->size == 0 || piece->offset < end || piece->offset > transfer->size ||
            piece->size > transfer->size - piece->offset) {
            return false;
        }
        end = piece->offset + piece->size;
    }
    return true;
}

/* Index of the first piece that ends after an offset. */
static uint64_t piece_ending_after(const struct transfer *transfer, uint64_t offset)
{
    uint64_t low = 0;
    uint64_t high = transfer->piece_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const struct transfer_piece *piece = &transfer->pieces[middle];
        if (piece->offset + piece->size > offset) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static uint64_t min_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Copy a strip of a piece, and continue the checksum over the copy. */
static uint32_t copy_strip(const struct transfer *transfer, const struct transfer_piece *piece,
                           uint64_t at, uint64_t size, uint32_t sum)
{
    uint8_t *inside = transfer->payload + at;
    uint8_t *outside = piece->memory + (at - piece->offset);
    bool saves = transfer->kind == TRANSFER_SAVE;
    memcpy(saves ? inside : outside, saves ? outside : inside, size);
    return crc32c(sum, saves ? inside : outside, size);
}

static uint32_t fill_strip(const struct transfer *transfer, uint64_t at, uint64_t size,
                           uint32_t sum)
{
    uint8_t *inside = transfer->payload + at;
    if (transfer->kind == TRANSFER_SAVE) {
        memset(inside, 0, size);
    }
    return crc32c(sum, inside, size);
}

bool transfer_block(const struct transfer *transfer, uint64_t number)
{
    uint64_t at = number * BLOCK_BYTES;
    uint64_t end = at + min_of(BLOCK_BYTES, transfer->size - at);
    uint64_t next = piece_ending_after(transfer, at);
    uint32_t sum = 0;
    while (at < end) {
        const struct transfer_piece *piece =
            next < transfer->piece_count ? &transfer->pieces[next] : NULL;
        uint64_t size = min_of(end - at, STRIP_BYTES);
        if (piece == NULL || piece->offset > at) {
            size = piece == NULL ? size : min_of(size, piece->offset - at);
            sum = fill_strip(transfer, at, size, sum);
            at += size;
            continue;
        }
        uint64_t piece_end = piece->offset + piece->size;
        size = min_of(size, piece_end - at);
        sum = copy_strip(transfer, piece, at, size, sum);
        at += size;
        next += at == piece_end;
    }
    if (transfer->kind == TRANSFER_SAVE) {
        transfer->checksums[number] = sum;
        return true;
    }
    return transfer->checksums[number] == sum;
}
