/* Ways to make communicators: `inits FILE`. */
#define _GNU_SOURCE
#include "../sim/ccl_api.h"
#include "../sim/runtime_api.h"
#include "../sim/sim.h"
#include "client.h"
#include "scenes.h"

#ifndef SIM_OLD_CCL
static void talk(void *comm, void *stream, const char *group)
{
    for (long seq = 0; seq < 2; seq++) {
        OK(CCL(AllReduce)(NULL, NULL, 100, CCL_FLOAT, 0, comm, stream));
        expect_transfer("allreduce", group, seq, 400, -1);
    }
    OK(RT(StreamSynchronize)(stream));
}

/* The call comes back before the communicator is made. */
static void *in_the_background(const struct ccl_id *id)
{
    struct ccl_config config = {.size = sizeof config, .blocking = 0};
    void *comm = NULL;
    int error = CCL(CommInitRankConfig)(&comm, rank_count(), *id, rank_number(), &config);
    expect_number("in_progress", error);
    for (error = CCL_IN_PROGRESS; error == CCL_IN_PROGRESS; sim_pause())
        OK(CCL(CommGetAsyncError)(comm, &error));
    OK(error);
    return comm;
}

/* Both are made when the group ends. */
static void in_a_group(const struct ccl_id *ids, void **comms)
{
    OK(CCL(GroupStart)());
    for (int i = 0; i < 2; i++)
        OK(CCL(CommInitRank)(&comms[i], rank_count(), ids[i], rank_number()));
    OK(CCL(GroupEnd)());
}

/* One process has all the ranks; they must be called in a group, or the first would wait for ever. */
static void in_one_process(void)
{
    void *comms[2], *streams[2];
    OK(CCL(CommInitAll)(comms, 2, NULL));
    for (int i = 0; i < 2; i++)
        OK(RT(StreamCreate)(&streams[i]));
    OK(CCL(GroupStart)());
    for (int i = 0; i < 2; i++) {
        OK(CCL(AllReduce)(NULL, NULL, 7, CCL_FLOAT, 0, comms[i], streams[i]));
        expect_transfer("allreduce", "all", 0, 28, -1);
    }
    OK(CCL(GroupEnd)());
    for (int i = 0; i < 2; i++) {
        OK(RT(StreamSynchronize)(streams[i]));
        OK(CCL(CommDestroy)(comms[i]));
    }
}

void inits(char **arguments)
{
    void *stream = NULL, *first = NULL, *pair[2] = {NULL, NULL};
    struct ccl_id ids[3];
    OK(RT(StreamCreate)(&stream));
    sim_set_length(SIM_LENGTH_TRANSFER, 2 * MS);
    for (int i = 0; rank_number() == 0 && i < 3; i++)
        OK(CCL(GetUniqueId)(&ids[i]));
    share(arguments[0], ids, sizeof ids);
    first = in_the_background(&ids[0]);
    talk(first, stream, "background");
    in_a_group(&ids[1], pair);
    talk(pair[0], stream, "group 0");
    talk(pair[1], stream, "group 1");
    in_one_process();
    meet();
    OK(CCL(CommDestroy)(first));
    OK(CCL(CommAbort)(pair[0]));
    OK(CCL(CommDestroy)(pair[1]));
    OK(RT(DeviceReset)());
    tell_counts();
}
#endif
