#include "device/aborts.h"
#include "device_hook.h"
#include "transfers/transfer_groups.h"
#include "transfers/transfers.h"

/* There is no public call that ends what hangs on a communicator and leaves the rest alone. */
static struct rk_transfer_library hccl = {
    .count = "HcclGetRankSize", .rank = "HcclGetRankId", .abort = NULL, .in_progress = -1};

#define VENDOR RK_PLATFORM_ASCEND
#define ROWS HCCL

enum { ROOT_INFO_BYTES = 4108 };

/* By HcclDataType. */
static uint64_t type_bytes(int type)
{
    static const uint8_t bytes[] = {1, 2, 4, 2, 4, 8, 8, 1, 2, 4, 8, 2, 16, 0, 1, 1, 1, 1};
    return type >= 0 && (size_t)type < sizeof bytes ? bytes[type] : 0;
}

#define TRANSFER(row, kind_, parameters, arguments, elements, type, peer_, times)                  \
    WRAP(row, parameters)                                                                          \
    {                                                                                              \
        FIND_ORIGINAL(row);                                                                        \
        if (!rk_platform_wanted(VENDOR))                                                           \
            return original arguments;                                                             \
        struct rk_transfer transfer;                                                               \
        rk_transfer_begin(&transfer,                                                               \
                          &(struct rk_transfer_call){.library = &hccl,                             \
                                                     .hook = HOOK_ID(row),                         \
                                                     .kind = kind_,                                \
                                                     .vendor = VENDOR,                             \
                                                     .communicator = communicator,                 \
                                                     .stream = stream,                             \
                                                     .original = (uintptr_t)original,              \
                                                     .size_bytes = (elements) * type_bytes(type),  \
                                                     .peer = peer_,                                \
                                                     .times_size = times});                        \
        int result = original arguments;                                                           \
        rk_transfer_end(&transfer, &hccl, result);                                                 \
        return result;                                                                             \
    }

TRANSFER(ALLREDUCE, RK_TRANSFER_COLLECTIVE,
         (void *in, void *out, uint64_t count, int type, int op, void *communicator, void *stream),
         (in, out, count, type, op, communicator, stream), count, type, -1, false)
TRANSFER(BROADCAST, RK_TRANSFER_COLLECTIVE,
         (void *buffer, uint64_t count, int type, uint32_t root, void *communicator, void *stream),
         (buffer, count, type, root, communicator, stream), count, type, (int32_t)root, false)
TRANSFER(REDUCE, RK_TRANSFER_COLLECTIVE,
         (void *in, void *out, uint64_t count, int type, int op, uint32_t root, void *communicator,
          void *stream),
         (in, out, count, type, op, root, communicator, stream), count, type, (int32_t)root, false)
TRANSFER(ALLGATHER, RK_TRANSFER_COLLECTIVE,
         (void *in, void *out, uint64_t count, int type, void *communicator, void *stream),
         (in, out, count, type, communicator, stream), count, type, -1, true)
TRANSFER(REDUCE_SCATTER, RK_TRANSFER_COLLECTIVE,
         (void *in, void *out, uint64_t count, int type, int op, void *communicator, void *stream),
         (in, out, count, type, op, communicator, stream), count, type, -1, true)
TRANSFER(SCATTER, RK_TRANSFER_COLLECTIVE,
         (void *in, void *out, uint64_t count, int type, uint32_t root, void *communicator,
          void *stream),
         (in, out, count, type, root, communicator, stream), count, type, (int32_t)root, true)
TRANSFER(ALLTOALL, RK_TRANSFER_COLLECTIVE,
         (const void *in, uint64_t count, int type, const void *out, uint64_t out_count,
          int out_type, void *communicator, void *stream),
         (in, count, type, out, out_count, out_type, communicator, stream), count, type, -1, true)
/* The counts are per rank, and the number of ranks is not among the arguments: no size. */
TRANSFER(ALLTOALLV, RK_TRANSFER_COLLECTIVE,
         (const void *in, const void *in_counts, const void *in_places, int type, const void *out,
          const void *out_counts, const void *out_places, int out_type, void *communicator,
          void *stream),
         (in, in_counts, in_places, type, out, out_counts, out_places, out_type, communicator,
          stream),
         0, type, -1, false)
TRANSFER(BARRIER, RK_TRANSFER_COLLECTIVE, (void *communicator, void *stream),
         (communicator, stream), 0, 0, -1, false)
TRANSFER(SEND, RK_TRANSFER_SEND,
         (void *buffer, uint64_t count, int type, uint32_t peer, void *communicator, void *stream),
         (buffer, count, type, peer, communicator, stream), count, type, (int32_t)peer, false)
TRANSFER(RECV, RK_TRANSFER_RECV,
         (void *buffer, uint64_t count, int type, uint32_t peer, void *communicator, void *stream),
         (buffer, count, type, peer, communicator, stream), count, type, (int32_t)peer, false)
/* HcclSendRecvItem */
struct send_recv {
    int receives;
    void *buffer;
    uint64_t count;
    int type;
    uint32_t peer;
};

/* Its parts begin and end together, as those between NCCL's GroupStart and GroupEnd do. */
WRAP(BATCH, (const struct send_recv *items, uint32_t count, void *communicator, void *stream))
{
    FIND_ORIGINAL(BATCH);
    if (!rk_platform_wanted(VENDOR))
        return original(items, count, communicator, stream);
    rk_group_start();
    for (uint32_t i = 0; items != NULL && i < count; i++) {
        struct rk_transfer part;
        bool receives = items[i].receives != 0;
        rk_transfer_begin(&part, &(struct rk_transfer_call){
                                     .library = &hccl,
                                     .hook = receives ? RK_HOOK_HCCL_RECV : RK_HOOK_HCCL_SEND,
                                     .kind = receives ? RK_TRANSFER_RECV : RK_TRANSFER_SEND,
                                     .vendor = VENDOR,
                                     .communicator = communicator,
                                     .stream = stream,
                                     .original = (uintptr_t)original,
                                     .size_bytes = items[i].count * type_bytes(items[i].type),
                                     .peer = (int32_t)items[i].peer});
        rk_transfer_end(&part, &hccl, 0);
    }
    struct rk_group_end end;
    rk_group_end_begin(&end);
    int result = original(items, count, communicator, stream);
    rk_group_end_finish(&end, &hccl, result);
    return result;
}

/* A call that all ranks of a group make together, timed by the host, with what comes after it. */
#define ON_ALL_RANKS(row, parameters, arguments, after)                                            \
    WRAP(row, parameters)                                                                          \
    {                                                                                              \
        FIND_ORIGINAL(row);                                                                        \
        RK_SCOPE(scope);                                                                           \
        if (scope.slot != NULL) {                                                                  \
            scope.op.hook = HOOK_ID(row);                                                          \
            rk_begin(&scope);                                                                      \
        }                                                                                          \
        int result = original arguments;                                                           \
        scope.returned = result == 0;                                                              \
        if (scope.slot != NULL) {                                                                  \
            after;                                                                                 \
        }                                                                                          \
        return result;                                                                             \
    }

#define CREATED(where_, rank_, size_, name_)                                                       \
    rk_communicator_created(&(struct rk_new_communicator){.where = where_,                         \
                                                          .library = &hccl,                        \
                                                          .original = (uintptr_t)original,         \
                                                          .rank = rank_,                           \
                                                          .size = size_,                           \
                                                          .name = name_},                          \
                            result)
#define NAME_BY(info) rk_hash(RK_HASH_START, info, ROOT_INFO_BYTES)

ON_ALL_RANKS(INIT_RANK, (uint32_t ranks, const void *info, uint32_t rank, void **communicator),
             (ranks, info, rank, communicator),
             CREATED(communicator, (int32_t)rank, (int32_t)ranks, NAME_BY(info)))
ON_ALL_RANKS(INIT_RANK_CONFIG,
             (uint32_t ranks, const void *info, uint32_t rank, const void *config,
              void **communicator),
             (ranks, info, rank, config, communicator),
             CREATED(communicator, (int32_t)rank, (int32_t)ranks, NAME_BY(info)))
ON_ALL_RANKS(INIT_CLUSTER, (const char *file, uint32_t rank, void **communicator),
             (file, rank, communicator), CREATED(communicator, (int32_t)rank, -1, 0))
ON_ALL_RANKS(INIT_CLUSTER_CONFIG,
             (const char *file, uint32_t rank, void *config, void **communicator),
             (file, rank, config, communicator), CREATED(communicator, (int32_t)rank, -1, 0))
ON_ALL_RANKS(INIT_ALL, (uint32_t devices, int32_t *list, void **communicators),
             (devices, list, communicators),
             for (uint32_t i = 0; i < devices; i++)
                 CREATED(&communicators[i], (int32_t)i, (int32_t)devices, 0))

/* The program gives the child a number that is the same on every rank. */
static uint64_t child_name(void **parent, uint64_t number)
{
    uint64_t name = parent != NULL ? rk_split_name(*parent, -2) : 0;
    return name != 0 ? rk_hash(name, &number, sizeof number) : 0;
}

ON_ALL_RANKS(SUBGROUP,
             (void **parent, uint32_t ranks, uint32_t *list, uint64_t number, uint32_t rank,
              void *config, void **communicator),
             (parent, ranks, list, number, rank, config, communicator),
             CREATED(communicator, (int32_t)rank, (int32_t)ranks, child_name(parent, number)))

WRAP(DESTROY, (void *communicator))
{
    FIND_ORIGINAL(DESTROY);
    rk_communicator_ends(communicator);
    RK_SCOPE(scope);
    if (scope.slot != NULL) {
        scope.op.hook = HOOK_ID(DESTROY);
        rk_begin(&scope);
    }
    int result = original(communicator);
    scope.returned = result == 0;
    return result;
}
