/* Test double: ranks that meet. The ranks of a communicator are processes of one host, or threads; they
 * meet in a file that all map, named after the communicator's unique id, in the folder SIM_DIR. */
#ifndef SIM_GROUP_H
#define SIM_GROUP_H

#include "sim.h"

enum { SIM_ID_BYTES = 128, SIM_RANKS = 8, SIM_BATCH = 64 };

struct sim_comm;

/* A collective, or one end of a send and receive. */
struct sim_item {
    struct sim_comm *comm;
    const char *label;
    uint64_t bytes;
    int kind; /* of enum sim_item_kind */
    int peer;
    uint64_t number; /* filled by sim_batch_enqueue */
};

enum sim_item_kind { SIM_COLLECTIVE, SIM_SEND, SIM_RECEIVE };

/* Makes the rank's end; `library` is what SIM_STALL calls it. Waits for nobody. */
SIM_API struct sim_comm *sim_comm_new(const char *library, const void *id, int rank, int size);
/* Waits until all ranks have joined; false where it was aborted meanwhile. */
SIM_API bool sim_comm_join(struct sim_comm *comm);
/* NULL where the handle is none, or of one that was ended, which is counted as misuse. */
SIM_API struct sim_comm *sim_comm_of(void *handle);
SIM_API int sim_comm_rank(const struct sim_comm *comm);
SIM_API int sim_comm_size(const struct sim_comm *comm);
SIM_API bool sim_comm_aborted(const struct sim_comm *comm);
SIM_API bool sim_comm_is_ready(const struct sim_comm *comm);
/* Ends what waits on it. */
SIM_API void sim_comm_abort(struct sim_comm *comm);
/* After all its work is over. */
SIM_API void sim_comm_end(struct sim_comm *comm);
/* Id of the ranks that give the same color, and this rank's place among them by key; all ranks call
 * it. False where color is negative, or the communicator was aborted. */
SIM_API bool sim_comm_split(struct sim_comm *comm, int color, int key, uint8_t *id, int *rank,
                            int *size);
/* Id of a subgroup that the program numbers itself. */
SIM_API void sim_comm_child_id(const struct sim_comm *comm, uint64_t number, uint8_t *id);
SIM_API void sim_new_id(void *id, size_t bytes);

/* Puts them on the stream as one piece of work, which takes SIM_LENGTH_TRANSFER from when the last of
 * all ranks has begun. */
SIM_API int sim_batch_enqueue(void *stream, const struct sim_item *items, uint32_t count);

#endif
