/* Test double: communicators. */
#define _GNU_SOURCE
#include "group_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

enum { MAGIC = 0x4d4d4f43, DEAD = 0x44414544 };

/* So that whoever forgets a communicator has not lost memory. */
static _Atomic(struct sim_comm *) newest;

static uint64_t hash(uint64_t value, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        value = (value ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
    return value;
}

void sim_new_id(void *id, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t got = getrandom((char *)id + at, bytes - at, 0);
        if (got > 0)
            at += (size_t)got;
    }
}

static struct sim_shared *map(const uint8_t *id)
{
    const char *folder = getenv("SIM_DIR");
    char path[512];
    snprintf(path, sizeof path, "%s/%016llx.simgroup", folder != NULL ? folder : "/tmp",
             (unsigned long long)hash(1, id, SIM_ID_BYTES));
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *mapped = MAP_FAILED;
    if (file >= 0 && ftruncate(file, sizeof(struct sim_shared)) == 0)
        mapped = mmap(NULL, sizeof(struct sim_shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    return mapped == MAP_FAILED ? NULL : mapped;
}

struct sim_comm *sim_comm_new(const char *library, const void *id, int rank, int size)
{
    struct sim_comm *comm = calloc(1, sizeof *comm);
    if (comm == NULL || rank < 0 || rank >= size || size > SIM_RANKS) {
        free(comm);
        return NULL;
    }
    memcpy(comm->id, id, SIM_ID_BYTES);
    snprintf(comm->library, sizeof comm->library, "%s", library);
    comm->rank = rank;
    comm->size = size;
    comm->shared = map(comm->id);
    if (comm->shared == NULL) {
        free(comm);
        return NULL;
    }
    comm->magic = MAGIC;
    comm->older = atomic_load(&newest);
    while (!atomic_compare_exchange_weak(&newest, &comm->older, comm))
        ;
    return comm;
}

bool sim_comm_join(struct sim_comm *comm)
{
    atomic_fetch_add(&comm->pending, 1);
    atomic_fetch_add(&comm->shared->joined, 1);
    while (atomic_load(&comm->shared->joined) < (uint32_t)comm->size &&
           !atomic_load(&comm->aborted))
        sim_pause();
    atomic_store(&comm->ready, true);
    bool joined = !atomic_load(&comm->aborted);
    atomic_fetch_sub(&comm->pending, 1);
    return joined;
}

struct sim_comm *sim_comm_of(void *handle)
{
    struct sim_comm *comm = handle;
    if (comm != NULL && comm->magic == MAGIC)
        return comm;
    sim_count(SIM_MISUSES, 1);
    return NULL;
}

int sim_comm_rank(const struct sim_comm *comm)
{
    return comm->rank;
}

int sim_comm_size(const struct sim_comm *comm)
{
    return comm->size;
}

bool sim_comm_aborted(const struct sim_comm *comm)
{
    return atomic_load(&comm->aborted);
}

bool sim_comm_is_ready(const struct sim_comm *comm)
{
    return atomic_load(&comm->ready);
}

void sim_comm_abort(struct sim_comm *comm)
{
    atomic_store(&comm->aborted, true);
    sim_comm_end(comm);
}

/* Its memory stays, so that the use of an ended one is seen and counted. */
void sim_comm_end(struct sim_comm *comm)
{
    while (atomic_load(&comm->pending) != 0)
        sim_pause();
    comm->magic = DEAD;
    munmap(comm->shared, sizeof(struct sim_shared));
    comm->shared = NULL;
}

static void derive(const struct sim_comm *comm, uint64_t a, uint64_t b, uint8_t *id)
{
    for (size_t i = 0; i < SIM_ID_BYTES; i += sizeof(uint64_t)) {
        uint64_t value = hash(i, comm->id, SIM_ID_BYTES);
        value = hash(hash(value, &a, sizeof a), &b, sizeof b);
        memcpy(id + i, &value, sizeof value);
    }
}

void sim_comm_child_id(const struct sim_comm *comm, uint64_t number, uint8_t *id)
{
    derive(comm, UINT64_MAX, number, id);
}

static bool gather_split(struct sim_comm *comm, struct sim_split *split, int color, int key)
{
    split->color[comm->rank] = color;
    split->key[comm->rank] = key;
    atomic_fetch_add(&split->written, 1);
    while (atomic_load(&split->written) < (uint32_t)comm->size) {
        if (atomic_load(&comm->aborted))
            return false;
        sim_pause();
    }
    return true;
}

bool sim_comm_split(struct sim_comm *comm, int color, int key, uint8_t *id, int *rank, int *size)
{
    uint64_t number = comm->splits++;
    struct sim_split *split = &comm->shared->split[number % SIM_SPLITS];
    atomic_fetch_add(&comm->pending, 1);
    bool complete = gather_split(comm, split, color, key);
    *rank = *size = 0;
    for (int i = 0; complete && i < comm->size; i++) {
        bool before = split->key[i] < key || (split->key[i] == key && i < comm->rank);
        *rank += split->color[i] == color && before;
        *size += split->color[i] == color;
    }
    derive(comm, number, (uint64_t)(int64_t)color, id);
    atomic_fetch_sub(&comm->pending, 1);
    return complete && color >= 0;
}
