/* Checks native/slots; test_slots.py builds and runs it under the sanitizers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "slots/crc32c.h"
#include "slots/slots.h"

#define REQUIRE(what)                                                                              \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { PIECES = 20, ROUNDS = 4 };

static uint64_t seed = 1;

static uint32_t any(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33);
}

static uint8_t *random_bytes(size_t size)
{
    uint8_t *bytes = malloc(size + 1);
    REQUIRE(bytes != NULL);
    /* A prime, so that no two blocks are alike. */
    enum { DRAWN = 4093 };
    for (size_t i = 0; i < size && i < DRAWN; i++) {
        bytes[i] = (uint8_t)any();
    }
    for (size_t i = DRAWN; i < size; i += DRAWN) {
        memcpy(bytes + i, bytes, size - i < DRAWN ? size - i : DRAWN);
    }
    return bytes;
}

static void check_checksums(void)
{
    REQUIRE(crc32c(0, "123456789", 9) == UINT32_C(0xe3069283));
    REQUIRE(crc32c_by_table(0, "123456789", 9) == UINT32_C(0xe3069283));
    uint8_t *bytes = random_bytes(60000);
    static const size_t sizes[] = {0, 1, 7, 8, 9, 4095, 12287, 12288, 12289, 24576, 59990};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t size = sizes[i];
        for (size_t start = 0; start < 9; start++) {
            uint32_t whole = crc32c(7, bytes + start, size);
            REQUIRE(whole == crc32c_by_table(7, bytes + start, size));
            size_t half = size / 2;
            uint32_t first = crc32c(7, bytes + start, half);
            REQUIRE(whole == crc32c(first, bytes + start + half, size - half));
        }
    }
    free(bytes);
}

/* Each piece in an allocation of its own size, so that a byte too many is seen. */
static uint64_t make_pieces(struct transfer_piece *pieces, uint64_t count)
{
    uint64_t end = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t size = i % 11 == 0 ? 1 + any() % (2 * BLOCK_BYTES) : 1 + any() % 5000;
        end += i % 3 == 0 ? any() % 200000 : 0;
        pieces[i] = (struct transfer_piece){random_bytes(size), end, size};
        end += size;
    }
    return end;
}

static void check_copies(struct pool *pool, uint64_t count)
{
    struct transfer_piece pieces[PIECES];
    uint64_t size = make_pieces(pieces, count);
    uint8_t *payload = random_bytes(size);
    uint32_t *sums = calloc(block_count(size) + 1, sizeof *sums);
    uint64_t bad = 0;
    struct transfer transfer = {payload, size, sums, pieces, count, TRANSFER_SAVE};
    /* In two parts, as a save first copies what must be copied before the loop goes on. */
    uint64_t early = block_count(size) / 3;
    REQUIRE(rks_copy(pool, &transfer, 0, early, &bad) == 0);
    REQUIRE(rks_copy(pool, &transfer, early, block_count(size), &bad) == 0);
    for (uint64_t block = 0; block < block_count(size); block++) {
        uint64_t start = block * BLOCK_BYTES;
        uint64_t length = size - start < BLOCK_BYTES ? size - start : BLOCK_BYTES;
        REQUIRE(sums[block] == crc32c_by_table(0, payload + start, length));
    }
    uint64_t end = 0;
    for (uint64_t i = 0; i < count; i++) {
        for (; end < pieces[i].offset; end++) {
            REQUIRE(payload[end] == 0);
        }
        REQUIRE(memcmp(payload + end, pieces[i].memory, pieces[i].size) == 0);
        memset(pieces[i].memory, 0, pieces[i].size);
        end += pieces[i].size;
    }
    transfer.kind = TRANSFER_LOAD;
    REQUIRE(rks_copy(pool, &transfer, 0, block_count(size), &bad) == 0);
    for (uint64_t i = 0; i < count; i++) {
        REQUIRE(memcmp(payload + pieces[i].offset, pieces[i].memory, pieces[i].size) == 0);
    }
    if (size > 0) {
        uint64_t at = any() % size;
        payload[at] ^= 1;
        REQUIRE(rks_copy(pool, &transfer, 0, block_count(size), &bad) == EILSEQ);
        REQUIRE(bad == at / BLOCK_BYTES);
    }
    for (uint64_t i = 0; i < count; i++) {
        free(pieces[i].memory);
    }
    free(payload);
    free(sums);
}

static void check_refusals(struct pool *pool)
{
    uint8_t memory[16] = {0};
    uint8_t payload[64] = {0};
    uint32_t sums[1] = {0};
    uint64_t bad = 0;
    static const struct transfer_piece unsound[][2] = {
        {{NULL, 60, 8}, {NULL, 0, 0}},        /* beyond the end */
        {{NULL, 0, 16}, {NULL, 8, 8}},        /* one in the other */
        {{NULL, 16, 8}, {NULL, 0, 8}},        /* out of order */
        {{NULL, 0, 8}, {NULL, 16, 0}},        /* empty */
        {{NULL, UINT64_MAX, 8}, {NULL, 0, 8}} /* an offset that wraps around */
    };
    for (size_t i = 0; i < sizeof unsound / sizeof *unsound; i++) {
        struct transfer_piece pieces[2] = {unsound[i][0], unsound[i][1]};
        pieces[0].memory = pieces[1].memory = memory;
        uint64_t count = i == 0 ? 1 : 2;
        struct transfer transfer = {payload, sizeof payload, sums, pieces, count, TRANSFER_SAVE};
        REQUIRE(rks_copy(pool, &transfer, 0, 1, &bad) == EINVAL);
    }
    struct transfer transfer = {payload, sizeof payload, sums, NULL, 0, TRANSFER_SAVE};
    REQUIRE(rks_copy(pool, &transfer, 0, 2, &bad) == EINVAL);
    REQUIRE(rks_copy(pool, &transfer, 1, 0, &bad) == EINVAL);
    transfer.kind = 2;
    REQUIRE(rks_copy(pool, &transfer, 0, 1, &bad) == EINVAL);
}

static void check_states(void)
{
    uint64_t slot[4] = {0};
    uint64_t header[4] = {11, 12, 13, 14};
    rks_withdraw(slot, 5);
    REQUIRE(rks_state(slot) == 5 && slot[1] == 0);
    rks_publish(slot, header, 4);
    REQUIRE(rks_state(slot) == 11 && memcmp(slot, header, sizeof slot) == 0);
}

int main(void)
{
    check_checksums();
    check_states();
    for (uint32_t threads = 1; threads <= 4; threads += 3) {
        struct pool *pool = rks_pool_new(threads);
        REQUIRE(pool != NULL);
        check_refusals(pool);
        for (uint64_t round = 0; round < ROUNDS; round++) {
            check_copies(pool, round == 0 ? 0 : 1 + any() % (PIECES - 1));
        }
        rks_pool_free(pool);
    }
    rks_pool_free(NULL);
    puts("all well");
    return 0;
}
