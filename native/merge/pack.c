#include "pack.h"

#include <string.h>

enum { BYTE_BITS = 8 };

bool pack_intervals(const int32_t *intervals, uint64_t count, uint8_t *bits, uint64_t size)
{
    for (uint64_t i = 0; i < count; i++) {
        int32_t low = intervals[2 * i];
        int32_t high = intervals[2 * i + 1];
        if (low < 0 || high < low || (uint64_t)high / BYTE_BITS >= size) {
            return false;
        }
        uint64_t first = (uint64_t)low / BYTE_BITS;
        uint64_t last = (uint64_t)high / BYTE_BITS;
        /* The ranks from `low` on in its byte, and those up to `high` in its own. */
        uint8_t from = (uint8_t)(0xffu << (low % BYTE_BITS));
        uint8_t to = (uint8_t)(0xffu >> (BYTE_BITS - 1 - high % BYTE_BITS));
        if (first == last) {
            bits[first] |= from & to;
            continue;
        }
        bits[first] |= from;
        memset(bits + first + 1, 0xff, last - first - 1);
        bits[last] |= to;
    }
    return true;
}
