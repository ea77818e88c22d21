/* Test double: what the ranks of a communicator share. */
#ifndef SIM_GROUP_FILE_H
#define SIM_GROUP_FILE_H

#include "group.h"

enum { SIM_MEETINGS = 256, SIM_PAIR_MEETINGS = 64, SIM_SPLITS = 32 };

/* Zero is a good beginning for all of it, so a new file needs no setting up. */
struct sim_meeting {
    _Atomic uint64_t round; /* how often the place was used before */
    _Atomic uint64_t latest_ns;
    _Atomic uint32_t arrived, left;
};

struct sim_split {
    _Atomic uint32_t written;
    int32_t color[SIM_RANKS], key[SIM_RANKS];
};

struct sim_shared {
    _Atomic uint32_t joined;
    struct sim_meeting collective[SIM_MEETINGS];
    struct sim_meeting pair[SIM_RANKS * SIM_RANKS][SIM_PAIR_MEETINGS];
    struct sim_split split[SIM_SPLITS];
};

struct sim_comm {
    uint32_t magic;
    int rank, size;
    uint8_t id[SIM_ID_BYTES];
    char library[16];
    struct sim_shared *shared;
    uint64_t splits;
    _Atomic uint64_t collectives, sent[SIM_RANKS], received[SIM_RANKS];
    _Atomic uint32_t pending;
    _Atomic bool aborted, ready;
    struct sim_comm *older; /* of all that were made */
};

#endif
