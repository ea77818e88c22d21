/* Tests of the counts of sends and receives, without any preloading; run plain, under ASan and
 * UBSan, and under TSan.
 *
 *     peers_test DIRECTORY      all tests; says which one failed and exits with 1 */
#define _GNU_SOURCE
#include <pthread.h>

#include "core/peers.h"
#include "recorder_check.h"

enum { POSTERS = 4, POSTS_EACH = 20000, TAGS = 50 };

static struct rk_header *header;
static _Atomic uint8_t taken[TAGS][POSTERS * POSTS_EACH / TAGS];

static struct rk_op post(bool receives, int32_t peer, uint64_t tag, uint64_t size_bytes)
{
    struct rk_op op = {.size_bytes = size_bytes};
    rk_peer_post(header, (struct rk_transfer_key){3, receives, peer, tag}, &op);
    return op;
}

static const struct rk_peer *row_with(uint64_t size_bytes)
{
    for (int i = 0; i < RK_MAX_PEERS; i++)
        if (atomic_load(&rk_peers(header)[i].size_bytes[0]) == size_bytes)
            return &rk_peers(header)[i];
    return NULL;
}

static void test_each_direction_peer_and_tag_has_its_own_numbers(void)
{
    header = start();
    CHECK(post(true, 1, 0, 11).seq == 0 && post(true, 1, 0, 12).seq == 1);
    CHECK(post(false, 1, 0, 21).seq == 0 && post(true, 2, 0, 31).seq == 0);
    struct rk_op op = post(true, 1, 7, 41);
    CHECK(op.seq == 0 && op.peer == 1 && op.flops == 7 && op.communicator == 3);
    CHECK(op.flags == RK_OP_RECEIVES && post(false, 1, 7, 51).flags == 0);
    rk_peer_done(header, &op);
    const struct rk_peer *row = row_with(41);
    CHECK(row != NULL && row->posted == 1 && row->done == 1);
    CHECK(row->key == (UINT64_C(3) << 62 | UINT64_C(3) << 52 | UINT64_C(1) << 32 | 7));
    CHECK(row_with(11)->posted == 2 && row_with(11)->done == 0 &&
          row_with(11)->size_bytes[1] == 12);
    CHECK(header->peers_dropped == 0);
    rk_recorder_forget();
}

static void test_a_recorded_transfer_is_done_unless_it_fails(void)
{
    static const struct rk_hook rows[] = {{.kind = RK_P2P, .name = "recv"}};
    header = rk_state_file_create(directory, rows, 1);
    CHECK(header != NULL);
    rk_recorder_start(header);
    for (int i = 0; i < 3; i++) {
        RK_SCOPE(scope);
        CHECK(scope.slot != NULL);
        scope.op.size_bytes = 61;
        rk_peer_post(header, (struct rk_transfer_key){3, true, 1, 0}, &scope.op);
        rk_begin(&scope);
        scope.returned = i != 1;
    }
    CHECK(row_with(61)->posted == 3 && row_with(61)->done == 2);
    rk_recorder_forget();
}

static void test_what_does_not_fit_has_no_number(void)
{
    header = start();
    CHECK(post(true, 1 << RK_PEER_RANK_BITS, 0, 1).seq == -1);
    CHECK(post(true, 1, UINT64_C(1) << RK_PEER_TAG_BITS, 1).seq == -1);
    CHECK(header->peers_dropped == 2);
    uint64_t kept = 0;
    for (uint64_t tag = 0; tag < 2 * RK_MAX_PEERS; tag++)
        kept += post(true, 1, tag, 1).seq == 0;
    CHECK(kept > RK_MAX_PEERS / 2 && kept <= RK_MAX_PEERS);
    CHECK(header->peers_dropped == 2 + 2 * RK_MAX_PEERS - kept);
    /* The known ones go on. */
    CHECK(post(true, 1, 0, 1).seq == 1);
    rk_recorder_forget();
}

static void *post_many(void *unused)
{
    for (uint64_t i = 0; i < POSTS_EACH; i++) {
        struct rk_op op = post(true, 1, i % TAGS, i);
        CHECK(op.seq >= 0 && atomic_exchange(&taken[i % TAGS][op.seq], 1) == 0);
    }
    return unused;
}

static void test_threads_get_every_number_once(void)
{
    header = start();
    pthread_t posters[POSTERS];
    for (int i = 0; i < POSTERS; i++)
        pthread_create(&posters[i], NULL, post_many, NULL);
    for (int i = 0; i < POSTERS; i++)
        pthread_join(posters[i], NULL);
    int rows = 0;
    for (int i = 0; i < RK_MAX_PEERS; i++)
        rows += atomic_load(&rk_peers(header)[i].key) != 0;
    CHECK(rows == TAGS && header->peers_dropped == 0);
    rk_recorder_forget();
}

int main(int count, char **arguments)
{
    if (count != 2)
        return 2;
    directory = arguments[1];
    test_each_direction_peer_and_tag_has_its_own_numbers();
    test_a_recorded_transfer_is_done_unless_it_fails();
    test_what_does_not_fit_has_no_number();
    test_threads_get_every_number_once();
    printf("all passed\n");
    return 0;
}
