/* Programs that use simulated devices (../sim/README.md) as training uses real ones, and say on standard
 * output, one JSON object a line, what a recorder should have seen. */
#ifndef CLIENT_H
#define CLIENT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MS UINT64_C(1000000)

/* Any call that should succeed. */
#define OK(call)                                                                                   \
    do {                                                                                           \
        int client_error = (call);                                                                 \
        if (client_error != 0) {                                                                   \
            fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, client_error);       \
            exit(70);                                                                              \
        }                                                                                          \
    } while (0)

/* What was enqueued on a device. */
void expect_work(const char *name, uint64_t bytes, uint64_t flops, uint64_t length_ns);
/* A call that came back when it was done. */
void expect_call(const char *name, uint64_t bytes);
/* `group`: "world" or "child", "" where the transfer has no number. */
void expect_transfer(const char *name, const char *group, long seq, uint64_t bytes, int peer);
void expect_number(const char *name, int64_t value);

/* Says "up" and waits for a line from the test. */
void meet(void);

/* The rank's number and world, from RANK and WORLD_SIZE. */
int rank_number(void);
int rank_count(void);

/* Rank 0 gives these bytes to all ranks, by a file. */
void share(const char *path, void *bytes, size_t count);

/* Resident memory of this process, bytes. */
int64_t resident_bytes(void);

/* What the device counts. */
void tell_counts(void);

struct scene {
    const char *name;
    void (*play)(char **arguments);
};

/* The scenes of a program, ended by a NULL name. */
extern const struct scene scenes[];

#endif
