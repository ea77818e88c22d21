/* Tests of the event ring, without any preloading; run plain, under ASan and
 * UBSan, and under TSan.
 *
 *     event_ring_test DIRECTORY      all tests; says which one failed and exits with 1 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recorder_check.h"

enum { EVENT_WRITERS = 4, EVENTS_EACH = 3 * RK_EVENT_COUNT };

static _Atomic int events_going_on;

static void *append_many(void *header)
{
    for (uint64_t i = 1; i <= EVENTS_EACH; i++) {
        struct rk_op op = {.start_ns = i, .end_ns = i + 1, .size_bytes = 2 * i, .flops = 3 * i};
        rk_append_event(header, &op);
    }
    atomic_fetch_sub(&events_going_on, 1);
    return NULL;
}

/* The reader of relkit/hook/events.py in C, so that thread sanitizer watches the protocol. */
static uint64_t look_at_events(struct rk_header *header, uint64_t next)
{
    uint64_t begun = atomic_load(&header->events_begun);
    for (uint64_t i = next; i < begun; i++) {
        struct rk_event *event = &rk_events(header)[i % RK_EVENT_COUNT];
        uint64_t before = atomic_load_explicit(&event->ticket, memory_order_acquire);
        struct rk_op op = copy_of(&event->op);
        uint64_t now_begun = atomic_load(&header->events_begun);
        if (before == i + 1 && now_begun <= i + RK_EVENT_COUNT)
            CHECK(op.end_ns == op.start_ns + 1 && op.size_bytes == 2 * op.start_ns &&
                  op.flops == 3 * op.start_ns);
    }
    return begun;
}

static void test_events_of_many_writers_are_whole(void)
{
    struct rk_header *header = start();
    pthread_t writers[EVENT_WRITERS];
    atomic_store(&events_going_on, EVENT_WRITERS);
    for (int i = 0; i < EVENT_WRITERS; i++)
        pthread_create(&writers[i], NULL, append_many, header);
    uint64_t next = 0;
    while (atomic_load(&events_going_on) > 0)
        next = look_at_events(header, next);
    for (int i = 0; i < EVENT_WRITERS; i++)
        pthread_join(writers[i], NULL);
    CHECK(header->events_begun == (uint64_t)EVENT_WRITERS * EVENTS_EACH);
    /* Each row holds one of its own events, whole; only a writer that slept through a round of the
     * others can have lost one. */
    for (uint64_t i = 0; i < RK_EVENT_COUNT; i++) {
        struct rk_event *event = &rk_events(header)[i];
        struct rk_op op = copy_of(&event->op);
        CHECK(event->ticket != 0 && (event->ticket - 1) % RK_EVENT_COUNT == i);
        CHECK(op.size_bytes == 2 * op.start_ns && op.flops == 3 * op.start_ns);
    }
    CHECK(header->dropped < EVENTS_EACH);
    rk_recorder_forget();
}

static void test_the_event_ring_keeps_the_newest(void)
{
    enum { COUNT = 2 * RK_EVENT_COUNT + 9 };
    struct rk_header *header = start();
    record(1, false); /* a product: no event, but time spent */
    struct rk_op product = copy_of(&rk_slots(header)[0].ring[0]);
    CHECK(header->events_begun == 0 && header->busy_ns == product.end_ns - product.start_ns);
    for (uint64_t i = 0; i < COUNT; i++)
        record(2 * i, i % 3 == 0);
    CHECK(header->events_begun == COUNT && header->dropped == 0);
    for (uint64_t i = COUNT - RK_EVENT_COUNT; i < COUNT; i++) {
        struct rk_event *event = &rk_events(header)[i % RK_EVENT_COUNT];
        struct rk_op op = copy_of(&event->op);
        check_whole(&op);
        CHECK(event->ticket == i + 1 && op.seq == (int64_t)(2 * i));
        CHECK(op.flags == (i % 3 == 0 ? RK_OP_FAILED : 0u) && op.enqueue_ns == 0);
        CHECK(event->busy_ns == header->busy_ns);
    }
    rk_recorder_forget();
}

static void append_one(struct rk_header *header, uint64_t number)
{
    struct rk_op op = {.start_ns = number, .end_ns = number + 1, .seq = (int64_t)number};
    rk_append_event(header, &op);
}

static void test_no_row_has_two_writers(void)
{
    struct rk_header *header = start();
    for (uint64_t i = 0; i < RK_EVENT_COUNT; i++)
        append_one(header, i);
    CHECK(header->dropped == 0);
    struct rk_event *rows = rk_events(header);
    /* Row 0: its writer was stopped for a whole round. Row 1: the next writer was stopped so long
     * that the row holds an event of a later round. Row 2: as it should be. */
    rows[0].ticket = 0;
    rows[1].ticket = 2 * RK_EVENT_COUNT + 2;
    for (uint64_t i = 0; i < 3; i++)
        append_one(header, RK_EVENT_COUNT + i);
    CHECK(header->events_begun == RK_EVENT_COUNT + 3 && header->dropped == 2);
    CHECK(rows[0].ticket == 0 && copy_of(&rows[0].op).seq == 0);
    CHECK(rows[1].ticket == 2 * RK_EVENT_COUNT + 2 && copy_of(&rows[1].op).seq == 1);
    CHECK(rows[2].ticket == RK_EVENT_COUNT + 3 && copy_of(&rows[2].op).seq == RK_EVENT_COUNT + 2);
    rk_recorder_forget();
}

static void test_a_forked_child_has_a_ring_of_its_own(void)
{
    struct rk_header *header = start();
    record(2, false);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        rk_recorder_forget();
        struct rk_header *own = start();
        CHECK(own->pid == getpid() && own->events_begun == 0);
        record(4, false);
        struct rk_op op = copy_of(&rk_events(own)[0].op);
        CHECK(own->events_begun == 1 && op.seq == 4 && op.tid == (uint32_t)getpid());
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    record(6, false);
    CHECK(header->events_begun == 2 && copy_of(&rk_events(header)[1].op).seq == 6);
    rk_recorder_forget();
}

int main(int count, char **arguments)
{
    if (count != 2)
        return 2;
    directory = arguments[1];
    test_events_of_many_writers_are_whole();
    test_the_event_ring_keeps_the_newest();
    test_no_row_has_two_writers();
    test_a_forked_child_has_a_ring_of_its_own();
    printf("all passed\n");
    return 0;
}
