/* Tests of what is known of posted gloo buffers, without any preloading; run plain, under ASan and
 * UBSan, and under TSan.
 *
 *     gloo_posts_test DIRECTORY      all tests; says which one failed and exits with 1
 *
 * The source is included, to choose buffers of one set and to begin near the wrap. */
#define _GNU_SOURCE
#include "hooks/gloo_posts.c"

#include <pthread.h>

#include "recorder_check.h"

enum {
    BUFFERS = 8192,
    POSTERS = 2,
    BUFFERS_EACH = 3 * SET / POSTERS,
    POSTS_EACH = 500000,
    LAST_NUMBER = (1 << 24) - 1
};

/* Each of the size of what is read of gloo's own. */
static struct {
    _Alignas(16) uint64_t words[8];
} buffers[BUFFERS];

uint64_t rk_gloo_buffer_bytes(const void *buffer)
{
    (void)buffer;
    return 0;
}

static const void *same_set[3 * SET];

static void choose_buffers(void)
{
    int chosen = 0;
    for (int i = 0; i < BUFFERS && chosen < 3 * SET; i++)
        if (set_of(&buffers[i]) == set_of(&buffers[0]))
            same_set[chosen++] = &buffers[i];
    CHECK(chosen == 3 * SET);
}

/* All that is noted comes from one number. */
static void post(const void *buffer, int number)
{
    rk_gloo_note_post(buffer, false, number, (uint64_t)number, 0, (uint64_t)number);
}

/* The number that a wait for it is told; -1: none. */
static int known(const void *buffer)
{
    struct rk_op op = {.peer = -1};
    rk_gloo_describe_wait(&op, buffer);
    CHECK(op.peer < 0 || (op.flops == (uint64_t)op.peer && op.size_bytes == (uint64_t)op.peer));
    return op.peer;
}

static uint32_t post_number(const void *buffer)
{
    struct rk_op op = {.peer = -1};
    rk_gloo_describe_wait(&op, buffer);
    return op.flags >> RK_OP_POST_SHIFT;
}

static void begin_after(uint32_t number)
{
    for (int i = 0; i < POSTS; i++)
        atomic_store(&posts[i].buffer, 0);
    atomic_store(&made, number);
}

static void test_the_newest_of_a_set_stay(uint32_t before)
{
    begin_after(before);
    for (int i = 0; i < 3 * SET; i++) {
        post(same_set[i], i);
        CHECK(post_number(same_set[i]) == ((before + 1 + (uint32_t)i) & LAST_NUMBER));
        for (int j = 0; j <= i; j++)
            CHECK(known(same_set[j]) == (j > i - SET ? j : -1));
    }
}

static void test_a_buffer_posted_again_displaces_none(void)
{
    begin_after(0);
    for (int i = 0; i < SET; i++)
        post(same_set[i], i);
    for (int i = 0; i < 10; i++)
        post(same_set[2], 100 + i);
    for (int i = 0; i < SET; i++)
        CHECK(known(same_set[i]) == (i == 2 ? 109 : i));
    /* It is the newest now. */
    for (int i = SET; i < 2 * SET - 1; i++)
        post(same_set[i], i);
    CHECK(known(same_set[2]) == 109 && known(same_set[3]) == -1);
}

/* A child that was forked amid a post: its copy of that place stays as it is. */
static void test_a_place_that_stays_being_written_is_passed_over(void)
{
    begin_after(0);
    unsigned first = set_of(same_set[0]);
    atomic_store(&posts[first + 1].buffer, BEING_WRITTEN);
    for (int i = 0; i < 2 * SET; i++)
        post(same_set[i], i);
    for (int i = 0; i < 2 * SET; i++)
        CHECK(known(same_set[i]) == (i > SET ? i : -1));
    for (int i = 0; i < SET; i++)
        atomic_store(&posts[first + (unsigned)i].buffer, BEING_WRITTEN);
    post(same_set[0], 0);
    CHECK(known(same_set[0]) == -1);
}

static void *post_and_wait(void *argument)
{
    int poster = (int)(intptr_t)argument;
    for (int i = 0; i < POSTS_EACH; i++) {
        int number = i * POSTERS + poster;
        const void *own = same_set[BUFFERS_EACH * poster + i % BUFFERS_EACH];
        post(own, number);
        int told = known(own);
        CHECK(told == number || told == -1);
    }
    return NULL;
}

static void test_threads_are_told_of_their_own_posts_alone(void)
{
    begin_after(0);
    pthread_t posters[POSTERS];
    for (int i = 0; i < POSTERS; i++)
        pthread_create(&posters[i], NULL, post_and_wait, (void *)(intptr_t)i);
    for (int i = 0; i < POSTERS; i++)
        pthread_join(posters[i], NULL);
    for (int i = 0; i < POSTS; i++)
        CHECK(atomic_load(&posts[i].buffer) != BEING_WRITTEN);
}

int main(int count, char **arguments)
{
    if (count != 2)
        return 2;
    directory = arguments[1];
    choose_buffers();
    start();
    test_the_newest_of_a_set_stay(0);
    test_the_newest_of_a_set_stay(LAST_NUMBER - 3);
    test_the_newest_of_a_set_stay(UINT32_MAX - 3);
    test_a_buffer_posted_again_displaces_none();
    test_a_place_that_stays_being_written_is_passed_over();
    test_threads_are_told_of_their_own_posts_alone();
    rk_recorder_forget();
    printf("all passed\n");
    return 0;
}
