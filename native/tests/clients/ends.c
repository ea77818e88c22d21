/* Work that has not ended: when the program does, or resets its device; and more streams than usual. */
#define _GNU_SOURCE
#include "../sim/ccl_api.h"
#include "../sim/runtime_api.h"
#include "../sim/sim.h"
#include "client.h"
#include "scenes.h"

enum { STREAMS = 100 };

static char kernel[8];

static void launch(void *stream, uint64_t length_ns)
{
    static const struct rt_dim3 one = {1, 1, 1};
    void *arguments[] = {&length_ns};
    OK(RT(LaunchKernel)(kernel, one, one, arguments, 0, stream));
}

/* Ends with kernels in flight, one of which never ends. */
void leaves(char **arguments)
{
    (void)arguments;
    void *streams[2];
    for (int i = 0; i < 2; i++)
        OK(RT(StreamCreate)(&streams[i]));
    launch(streams[0], 200 * MS);
    launch(streams[1], SIM_FOR_EVER);
    launch(streams[1], MS);
    meet();
}

/* Resets the device under work that is in flight, and uses it again. */
void resets(char **arguments)
{
    (void)arguments;
    void *stream = NULL;
    OK(RT(StreamCreate)(&stream));
    launch(stream, SIM_FOR_EVER);
    launch(stream, MS);
    meet();
    OK(RT(DeviceReset)());
    expect_number("events_after_reset", sim_counted(SIM_EVENTS));
    OK(RT(SetDevice)(0));
    OK(RT(StreamCreate)(&stream));
    OK(sim_hold(stream));
    launch(stream, 3 * MS);
    sim_let_go();
    OK(RT(StreamSynchronize)(stream));
    meet();
    OK(RT(DeviceReset)());
    tell_counts();
}

/* Two kernels on each of many streams, and a collective on each of them. */
void streams(char **arguments)
{
    (void)arguments;
    void *stream[STREAMS], *comm = NULL;
    struct ccl_id id;
    sim_set_length(SIM_LENGTH_TRANSFER, MS);
    OK(CCL(GetUniqueId)(&id));
    OK(CCL(CommInitRank)(&comm, 1, id, 0));
    for (int i = 0; i < STREAMS; i++) {
        OK(RT(StreamCreate)(&stream[i]));
        OK(sim_hold(stream[i]));
        launch(stream[i], 2 * MS);
        OK(CCL(AllReduce)(NULL, NULL, (size_t)(i + 1), CCL_INT8, 0, comm, stream[i]));
        launch(stream[i], MS);
    }
    sim_let_go();
    OK(RT(DeviceSynchronize)());
    OK(CCL(CommDestroy)(comm));
    expect_number("calls", 3 * STREAMS + 3);
    meet();
    OK(RT(DeviceReset)());
    tell_counts();
}
