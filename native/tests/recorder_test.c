/* Tests of the recorder without any preloading; run plain, under ASan and UBSan, and under TSan.
 *
 *     recorder_test DIRECTORY        all tests; says which one failed and exits with 1
 *     recorder_test DIRECTORY loop   records for ever, for a test that kills it in mid-write */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/communicators.h"
#include "core/process_stat.h"
#include "recorder_check.h"

static void test_an_operation_is_recorded(void)
{
    struct rk_header *header = start();
    record(5, false);
    record(6, true);
    struct rk_slot *slot = &rk_slots(header)[0];
    CHECK(header->slots_used == 1 && slot->started == 2 && slot->finished == 2);
    CHECK(slot->owner == (uint32_t)gettid());
    struct rk_op first = copy_of(&slot->ring[0]), second = copy_of(&slot->ring[1]);
    check_whole(&first);
    CHECK(first.seq == 5 && first.flags == 0 && first.end_ns >= first.start_ns);
    CHECK(first.tid == (uint32_t)gettid() && first.communicator == -1 && first.peer == -1);
    CHECK(second.seq == 6 && second.flags == RK_OP_FAILED);
    CHECK(slot->last_finish_ns == second.end_ns);
    CHECK(copy_of(&slot->flight).start_ns == 0 && slot->flight_seq % 2 == 0);
    rk_recorder_forget();
}

static void test_only_the_outermost_call_counts(void)
{
    struct rk_header *header = start();
    CHECK(!rk_inside());
    {
        RK_SCOPE(scope);
        CHECK(scope.slot != NULL && rk_inside());
        rk_begin(&scope);
        record(1, false);
        CHECK(rk_slots(header)[0].started == 1 && rk_slots(header)[0].finished == 0);
        CHECK(copy_of(&rk_slots(header)[0].flight).start_ns == scope.op.start_ns);
        scope.returned = true;
    }
    CHECK(!rk_inside() && rk_slots(header)[0].finished == 1);
    rk_recorder_forget();
}

static void test_an_operation_may_be_counted_only(void)
{
    struct rk_header *header = start();
    {
        RK_SCOPE(scope);
        rk_count(&scope);
        scope.returned = true;
    }
    struct rk_slot *slot = &rk_slots(header)[0];
    CHECK(slot->counted == 1 && slot->started == 0 && slot->finished == 0 && !rk_inside());
    rk_recorder_forget();
}

static void test_the_ring_keeps_the_newest(void)
{
    struct rk_header *header = start();
    for (uint64_t i = 0; i < 3 * RK_RING_LENGTH + 5; i++)
        record(i, false);
    struct rk_slot *slot = &rk_slots(header)[0];
    CHECK(slot->finished == 3 * RK_RING_LENGTH + 5);
    for (uint64_t i = 2 * RK_RING_LENGTH + 5; i < slot->finished; i++)
        CHECK(copy_of(&slot->ring[i % RK_RING_LENGTH]).seq == (int64_t)i);
    rk_recorder_forget();
}

static void test_communicators(void)
{
    struct rk_header *header = start();
    CHECK(rk_communicator_find(header, 4096) == -1);
    int world = rk_communicator_of(header, 4096, 1, 4);
    int other = rk_communicator_of(header, 8192, 0, 2);
    CHECK(world == 0 && other == 1 && rk_communicator_of(header, 4096, 1, 4) == 0);
    rk_communicator_name(header, world, "0", 1);
    rk_communicator_name(header, world, "late", 4);
    CHECK(rk_communicators(header)[0].named == 1 && rk_communicators(header)[0].name[0] == '0');
    char name[200];
    memset(name, 'x', sizeof name);
    rk_communicator_name(header, other, name, sizeof name);
    CHECK(rk_communicators(header)[1].named == sizeof rk_communicators(header)[1].name);

    CHECK(rk_communicator_advance(header, world, 0) == 0);
    CHECK(rk_communicator_advance(header, world, 2) == 2);
    /* The worker thread that was to start 1 comes late: the newest stays 2. */
    CHECK(rk_communicator_advance(header, world, 1) == 1);
    CHECK(rk_communicators(header)[0].seq == 2);
    for (int64_t i = 0; i < 20; i++)
        CHECK(rk_communicator_advance(header, other, -1) == i);

    rk_communicator_retire(header, 4096);
    CHECK(rk_communicator_find(header, 4096) == -1);
    CHECK(rk_communicator_of(header, 4096, 0, 1) == 2);
    for (uint64_t i = 0; i < RK_MAX_COMMUNICATORS; i++)
        rk_communicator_of(header, 1000000 + i, 0, 1);
    CHECK(rk_communicator_of(header, 77, 0, 1) == -1);
    rk_recorder_forget();
}

static void test_tags_that_stay_zero_are_not_believed(void)
{
    struct rk_header *header = start();
    int group = rk_communicator_of(header, 4096, 0, 2);
    for (int64_t i = 0; i < 50; i++) {
        int64_t seq = rk_communicator_advance(header, group, 0);
        CHECK(i < 8 ? seq == 0 : seq == i);
    }
    rk_recorder_forget();
}

static pthread_barrier_t all_inside;

static void *hold_a_slot(void *unused)
{
    (void)unused;
    {
        RK_SCOPE(scope);
        if (scope.slot != NULL)
            rk_begin(&scope);
        pthread_barrier_wait(&all_inside);
        pthread_barrier_wait(&all_inside);
        scope.returned = true;
    }
    return NULL;
}

static void test_more_threads_than_slots(void)
{
    enum { THREADS = RK_MAX_SLOTS + 12 };
    struct rk_header *header = start();
    pthread_t threads[THREADS];
    for (int round = 0; round < 2; round++) {
        pthread_barrier_init(&all_inside, NULL, THREADS + 1);
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_create(&threads[i], NULL, hold_a_slot, NULL) == 0);
        pthread_barrier_wait(&all_inside);
        CHECK(header->slots_used == RK_MAX_SLOTS);
        CHECK(header->dropped == 12u * (unsigned)(round + 1));
        pthread_barrier_wait(&all_inside);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&all_inside);
        for (int i = 0; i < RK_MAX_SLOTS; i++)
            CHECK(rk_slots(header)[i].owner == 0 &&
                  rk_slots(header)[i].finished == (uint64_t)round + 1);
    }
    rk_recorder_forget();
}

static void *add_communicators(void *header)
{
    for (uint64_t i = 0; i < 400; i++) {
        int index = rk_communicator_of(header, 5000 + i % 100, 0, 1);
        rk_communicator_advance(header, index, -1);
    }
    return NULL;
}

static void test_threads_that_add_the_same_communicator(void)
{
    struct rk_header *header = start();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, add_communicators, header);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    uint64_t seen = 0;
    for (int i = 0; i < 100; i++) {
        CHECK(rk_communicators(header)[i].started == 16 && rk_communicators(header)[i].seq == 15);
        seen += rk_communicators(header)[i].context;
    }
    CHECK(seen == 100 * 5000 + 99 * 100 / 2 && rk_communicators(header)[100].context == 0);
    rk_recorder_forget();
}

static _Atomic bool writing;
static _Atomic bool has_landed;

/* On a busy machine, 200,000 can be written before it is the reader's turn: it writes on. */
static void *write_many(void *unused)
{
    (void)unused;
    for (uint64_t i = 1; i <= 200000 || !atomic_load(&has_landed); i++)
        record(i, false);
    atomic_store(&writing, false);
    return NULL;
}

/* The reader of relkit/hook/reader.py, in C, so that thread sanitizer watches the protocol. */
static void test_a_reader_sees_only_whole_operations(void)
{
    struct rk_header *header = start();
    pthread_t writer;
    uint64_t flights = 0, landed = 0;
    atomic_store(&writing, true);
    atomic_store(&has_landed, false);
    pthread_create(&writer, NULL, write_many, NULL);
    while (atomic_load(&writing)) {
        struct rk_slot *slot = &rk_slots(header)[0];
        uint64_t before = atomic_load_explicit(&slot->flight_seq, memory_order_acquire);
        struct rk_op flight = copy_of(&slot->flight);
        uint64_t after = atomic_load_explicit(&slot->flight_seq, memory_order_acquire);
        if (before == after && before % 2 == 0 && flight.start_ns != 0) {
            check_whole(&flight);
            flights++;
        }
        uint64_t first = atomic_load_explicit(&slot->finished, memory_order_acquire);
        struct rk_op ring[RK_RING_LENGTH];
        for (int i = 0; i < RK_RING_LENGTH; i++)
            ring[i] = copy_of(&slot->ring[i]);
        uint64_t last = atomic_load_explicit(&slot->finished, memory_order_acquire);
        for (uint64_t i = first > RK_RING_LENGTH ? first - RK_RING_LENGTH : 0; i < first; i++) {
            if (i + RK_RING_LENGTH <= last)
                continue;
            check_whole(&ring[i % RK_RING_LENGTH]);
            CHECK(ring[i % RK_RING_LENGTH].seq == (int64_t)i + 1);
            landed++;
            atomic_store(&has_landed, true);
        }
    }
    pthread_join(writer, NULL);
    CHECK(landed > 0);
    printf("read %llu operations in flight and %llu finished ones\n", (unsigned long long)flights,
           (unsigned long long)landed);
    rk_recorder_forget();
}

static struct rk_slot *shown_in;
static void *op_page;
static volatile uint64_t seq_while_written, finished_while_written;

/* The recorder has begun to copy an operation that it may not read yet. */
static void look(int number)
{
    (void)number;
    seq_while_written = atomic_load(&shown_in->flight_seq);
    finished_while_written = atomic_load(&shown_in->finished);
    if (mprotect(op_page, (size_t)sysconf(_SC_PAGESIZE), PROT_READ) != 0)
        abort();
}

/* Makes an operation at whose first word the slot is looked at. */
static void watch(struct rk_slot *slot, struct sigaction *before)
{
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    shown_in = slot;
    op_page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(op_page != MAP_FAILED);
    *(struct rk_op *)op_page = (struct rk_op){.start_ns = 7, .end_ns = 8, .seq = 9};
    CHECK(mprotect(op_page, size, PROT_NONE) == 0);
    struct sigaction action = {.sa_handler = look};
    CHECK(sigaction(SIGSEGV, &action, before) == 0);
}

static void end_watch(const struct sigaction *before)
{
    CHECK(sigaction(SIGSEGV, before, NULL) == 0);
    munmap(op_page, (size_t)sysconf(_SC_PAGESIZE));
}

static void test_a_flight_is_marked_before_a_word_of_it_is_written(void)
{
    start();
    struct sigaction before;
    watch(rk_device_slot(), &before);
    CHECK(shown_in != NULL && shown_in->flight_seq % 2 == 0);
    uint64_t seq = shown_in->flight_seq;
    rk_device_show(shown_in, op_page);
    CHECK(seq_while_written == seq + 1 && shown_in->flight_seq == seq + 2);
    CHECK(copy_of(&shown_in->flight).seq == 9);
    rk_device_hide(shown_in);
    CHECK(shown_in->flight_seq == seq + 4 && copy_of(&shown_in->flight).start_ns == 0);
    end_watch(&before);
    rk_recorder_forget();
}

static void test_an_operation_counts_as_finished_when_all_of_it_is_written(void)
{
    struct rk_header *header = start();
    record(5, false);
    struct sigaction before;
    watch(&rk_slots(header)[0], &before);
    rk_record(header, shown_in, op_page, 1);
    CHECK(finished_while_written == 1 && shown_in->finished == 2);
    CHECK(copy_of(&shown_in->ring[1]).seq == 9);
    end_watch(&before);
    rk_recorder_forget();
}

static void test_after_forgetting_nothing_is_recorded(void)
{
    struct rk_header *header = start();
    {
        RK_SCOPE(scope);
        rk_begin(&scope);
        rk_recorder_forget(); /* as a child forked inside the call does */
    }
    record(1, false);
    CHECK(!rk_inside());
    header = start();
    CHECK(header->slots_used == 0);
    record(2, false);
    CHECK(rk_slots(header)[0].finished == 1);
    rk_recorder_forget();
}

static void test_what_the_kernel_says_of_a_process(void)
{
    char before[16];
    CHECK(prctl(PR_GET_NAME, before) == 0);
    /* The fields go on after the last bracket of the line, whatever the name is. */
    const char *names[] = {"plain", "a b", "a) 7 (b", "((", ") ) )"};
    uint64_t start_ticks = rk_process_stat(getpid(), RK_STAT_START_TICKS);
    CHECK(start_ticks > 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK(prctl(PR_SET_NAME, names[i]) == 0);
        CHECK(rk_process_stat(getpid(), RK_STAT_PARENT) == (uint64_t)getppid());
        CHECK(rk_process_stat(getpid(), RK_STAT_START_TICKS) == start_ticks);
    }
    CHECK(prctl(PR_SET_NAME, before) == 0);
    CHECK(rk_process_stat(0x7ffffff0, RK_STAT_PARENT) == 0);
}

static void test_a_file_that_cannot_be_made(void)
{
    CHECK(rk_state_file_create("/nonexistent/folder", hooks, 2) == NULL);
    CHECK(rk_state_file_create("/proc/self", hooks, 2) == NULL);
    CHECK(rk_state_file_create(directory, hooks, RK_MAX_HOOKS + 1) == NULL);
    char path[5000];
    memset(path, '/', sizeof path);
    path[sizeof path - 1] = '\0';
    CHECK(rk_state_file_create(path, hooks, 2) == NULL);
}

int main(int count, char **arguments)
{
    if (count < 2)
        return 2;
    directory = arguments[1];
    if (count > 2) {
        start();
        printf("recording\n");
        fflush(stdout);
        for (uint64_t i = 1;; i++)
            record(i, false);
    }
    test_an_operation_is_recorded();
    test_only_the_outermost_call_counts();
    test_an_operation_may_be_counted_only();
    test_the_ring_keeps_the_newest();
    test_communicators();
    test_tags_that_stay_zero_are_not_believed();
    test_more_threads_than_slots();
    test_threads_that_add_the_same_communicator();
    test_a_reader_sees_only_whole_operations();
    test_a_flight_is_marked_before_a_word_of_it_is_written();
    test_an_operation_counts_as_finished_when_all_of_it_is_written();
    test_after_forgetting_nothing_is_recorded();
    test_what_the_kernel_says_of_a_process();
    test_a_file_that_cannot_be_made();
    printf("all passed\n");
    return 0;
}
