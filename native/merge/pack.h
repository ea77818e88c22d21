/* Intervals of ranks as bits. */
#ifndef RELKIT_MERGE_PACK_H
#define RELKIT_MERGE_PACK_H

#include <stdbool.h>
#include <stdint.h>

/* Set bit N, lowest bit of a byte first, for each rank N of inclusive (low, high) pairs, in any
 * order. The other bits stay. False where a rank has no place in `size` bytes, or an interval ends
 * before it begins: some bits may be set then. */
bool pack_intervals(const int32_t *intervals, uint64_t count, uint8_t *bits, uint64_t size);

#endif
