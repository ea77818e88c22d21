#include "crc32c.h"

#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#define POLYNOMIAL UINT32_C(0x82f63b78)

enum {
    BYTE_VALUES = 256,
    WORD_BYTES = 8,
    /* The instruction has a latency of three cycles and a throughput of one per cycle, so three lanes
     * of this length are computed at a time. */
    LANE_BYTES = 4096,
};

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "slots are read and written as little-endian words"
#endif

static uint32_t tables[WORD_BYTES][BYTE_VALUES];
/* The effect of LANE_BYTES zeros on a checksum, by each of its four bytes. */
static uint32_t lane_shift[4][BYTE_VALUES];
static bool has_instruction;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint64_t word_at(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

static void make_tables(void)
{
    for (uint32_t value = 0; value < BYTE_VALUES; value++) {
        uint32_t rest = value;
        for (int bit = 0; bit < 8; bit++) {
            rest = (rest >> 1) ^ ((rest & 1) != 0 ? POLYNOMIAL : 0);
        }
        tables[0][value] = rest;
    }
    for (int byte = 1; byte < WORD_BYTES; byte++) {
        for (uint32_t value = 0; value < BYTE_VALUES; value++) {
            uint32_t before = tables[byte - 1][value];
            tables[byte][value] = (before >> 8) ^ tables[0][before & 0xff];
        }
    }
}

static void make_lane_shift(void)
{
    uint32_t of_bit[32];
    for (int bit = 0; bit < 32; bit++) {
        uint32_t rest = UINT32_C(1) << bit;
        for (int zero = 0; zero < LANE_BYTES; zero++) {
            rest = (rest >> 8) ^ tables[0][rest & 0xff];
        }
        of_bit[bit] = rest;
    }
    for (int byte = 0; byte < 4; byte++) {
        for (uint32_t value = 0; value < BYTE_VALUES; value++) {
            uint32_t sum = 0;
            for (int bit = 0; bit < 8; bit++) {
                sum ^= (value >> bit & 1) != 0 ? of_bit[8 * byte + bit] : 0;
            }
            lane_shift[byte][value] = sum;
        }
    }
}

static void prepare(void)
{
    make_tables();
    make_lane_shift();
#if defined(__x86_64__)
    __builtin_cpu_init();
    has_instruction = __builtin_cpu_supports("sse4.2") != 0;
#elif defined(__aarch64__)
    enum { HAS_CRC32 = 1 << 7 }; /* HWCAP_CRC32 */
    has_instruction = (getauxval(AT_HWCAP) & HAS_CRC32) != 0;
#endif
}

static uint32_t table_step(uint32_t rest, const uint8_t *data, size_t size)
{
    for (; size >= WORD_BYTES; data += WORD_BYTES, size -= WORD_BYTES) {
        uint64_t word = word_at(data) ^ rest;
        rest = 0;
        for (int byte = 0; byte < WORD_BYTES; byte++) {
            rest ^= tables[WORD_BYTES - 1 - byte][word >> (8 * byte) & 0xff];
        }
    }
    for (; size > 0; data++, size--) {
        rest = (rest >> 8) ^ tables[0][(rest ^ *data) & 0xff];
    }
    return rest;
}

#if defined(__x86_64__) || defined(__aarch64__)
#if defined(__x86_64__)
#define WITH_INSTRUCTION __attribute__((target("sse4.2")))

WITH_INSTRUCTION static inline uint64_t word_step(uint64_t rest, uint64_t word)
{
    return _mm_crc32_u64(rest, word);
}
#else
#define WITH_INSTRUCTION

/* In assembly: gcc and clang spell the attribute that allows the intrinsic differently. */
static inline uint64_t word_step(uint64_t rest, uint64_t word)
{
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(rest) : "r"(word));
    return rest;
}
#endif

static uint64_t shifted_by_lane(uint64_t rest)
{
    return lane_shift[0][rest & 0xff] ^ lane_shift[1][rest >> 8 & 0xff] ^
           lane_shift[2][rest >> 16 & 0xff] ^ lane_shift[3][rest >> 24 & 0xff];
}

WITH_INSTRUCTION static uint32_t hardware_step(uint32_t before, const uint8_t *data, size_t size)
{
    uint64_t rest = before;
    for (; size >= 3 * LANE_BYTES; data += 3 * LANE_BYTES, size -= 3 * LANE_BYTES) {
        uint64_t second = 0;
        uint64_t third = 0;
        for (size_t at = 0; at < LANE_BYTES; at += WORD_BYTES) {
            rest = word_step(rest, word_at(data + at));
            second = word_step(second, word_at(data + LANE_BYTES + at));
            third = word_step(third, word_at(data + 2 * LANE_BYTES + at));
        }
        rest = shifted_by_lane(shifted_by_lane(rest) ^ second) ^ third;
    }
    for (; size >= WORD_BYTES; data += WORD_BYTES, size -= WORD_BYTES) {
        rest = word_step(rest, word_at(data));
    }
    return table_step((uint32_t)rest, data, size);
}
#else
static uint32_t hardware_step(uint32_t rest, const uint8_t *data, size_t size)
{
    return table_step(rest, data, size);
}
#endif

uint32_t crc32c(uint32_t checksum, const void *data, size_t size)
{
    pthread_once(&once, prepare);
    return ~(has_instruction ? hardware_step : table_step)(~checksum, data, size);
}

uint32_t crc32c_by_table(uint32_t checksum, const void *data, size_t size)
{
    pthread_once(&once, prepare);
    return ~table_step(~checksum, data, size);
}

bool crc32c_in_hardware(void)
{
    pthread_once(&once, prepare);
    return has_instruction;
}
