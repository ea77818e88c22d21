/* NCCL's public functions, as MACA's mccl has them too; librccl has them under NCCL's own names. No
 * include guard, see device_hook.h. LIBRARY is the struct rk_transfer_library, and CALL_VENDOR(row)
 * whose device it is. */

#define REMOTE_ERROR 6 /* what a communicator that was aborted gives */
#define RANKS_TIMES true
#define AS_IT_IS false

#define TRANSFER(row, kind_, parameters, arguments, elements, type, peer_, times)                  \
    WRAP(row, parameters)                                                                          \
    {                                                                                              \
        FIND_ORIGINAL(row);                                                                        \
        if (rk_is_aborted(communicator))                                                           \
            return REMOTE_ERROR;                                                                   \
        enum rk_platform vendor = CALL_VENDOR(HOOK_ID(row));                                       \
        if (!rk_platform_wanted(vendor))                                                           \
            return original arguments;                                                             \
        struct rk_transfer transfer;                                                               \
        rk_transfer_begin(&transfer,                                                               \
                          &(struct rk_transfer_call){.library = &LIBRARY,                          \
                                                     .hook = HOOK_ID(row),                         \
                                                     .kind = kind_,                                \
                                                     .vendor = vendor,                             \
                                                     .communicator = communicator,                 \
                                                     .stream = stream,                             \
                                                     .original = (uintptr_t)original,              \
                                                     .size_bytes = (elements) * type_bytes(type),  \
                                                     .peer = peer_,                                \
                                                     .times_size = times});                        \
        int result = original arguments;                                                           \
        rk_transfer_end(&transfer, &LIBRARY, result);                                              \
        return result;                                                                             \
    }

/* By ncclDataType_t: 8, 32 and 64 bits, half, float, double, bfloat16, two of 8 bits. */
static uint64_t type_bytes(int type)
{
    static const uint8_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type >= 0 && (size_t)type < sizeof bytes ? bytes[type] : 0;
}

TRANSFER(ALLREDUCE, RK_TRANSFER_COLLECTIVE,
         (const void *in, void *out, size_t count, int type, int op, void *communicator,
          void *stream),
         (in, out, count, type, op, communicator, stream), count, type, -1, AS_IT_IS)
TRANSFER(BROADCAST, RK_TRANSFER_COLLECTIVE,
         (const void *in, void *out, size_t count, int type, int root, void *communicator,
          void *stream),
         (in, out, count, type, root, communicator, stream), count, type, root, AS_IT_IS)
TRANSFER(BCAST, RK_TRANSFER_COLLECTIVE,
         (void *buffer, size_t count, int type, int root, void *communicator, void *stream),
         (buffer, count, type, root, communicator, stream), count, type, root, AS_IT_IS)
TRANSFER(REDUCE, RK_TRANSFER_COLLECTIVE,
         (const void *in, void *out, size_t count, int type, int op, int root, void *communicator,
          void *stream),
         (in, out, count, type, op, root, communicator, stream), count, type, root, AS_IT_IS)
TRANSFER(ALLGATHER, RK_TRANSFER_COLLECTIVE,
         (const void *in, void *out, size_t count, int type, void *communicator, void *stream),
         (in, out, count, type, communicator, stream), count, type, -1, RANKS_TIMES)
TRANSFER(REDUCE_SCATTER, RK_TRANSFER_COLLECTIVE,
         (const void *in, void *out, size_t count, int type, int op, void *communicator,
          void *stream),
         (in, out, count, type, op, communicator, stream), count, type, -1, RANKS_TIMES)
TRANSFER(ALLTOALL, RK_TRANSFER_COLLECTIVE,
         (const void *in, void *out, size_t count, int type, void *communicator, void *stream),
         (in, out, count, type, communicator, stream), count, type, -1, RANKS_TIMES)
TRANSFER(GATHER, RK_TRANSFER_COLLECTIVE,
         (const void *in, void *out, size_t count, int type, int root, void *communicator,
          void *stream),
         (in, out, count, type, root, communicator, stream), count, type, root, RANKS_TIMES)
TRANSFER(SCATTER, RK_TRANSFER_COLLECTIVE,
         (const void *in, void *out, size_t count, int type, int root, void *communicator,
          void *stream),
         (in, out, count, type, root, communicator, stream), count, type, root, RANKS_TIMES)
TRANSFER(SEND, RK_TRANSFER_SEND,
         (const void *buffer, size_t count, int type, int peer, void *communicator, void *stream),
         (buffer, count, type, peer, communicator, stream), count, type, peer, AS_IT_IS)
TRANSFER(RECV, RK_TRANSFER_RECV,
         (void *buffer, size_t count, int type, int peer, void *communicator, void *stream),
         (buffer, count, type, peer, communicator, stream), count, type, peer, AS_IT_IS)

WRAP(GROUP_START, (void))
{
    FIND_ORIGINAL(GROUP_START);
    int result = original();
    if (result == 0)
        rk_group_start();
    return result;
}

WRAP(GROUP_END, (void))
{
    FIND_ORIGINAL(GROUP_END);
    struct rk_group_end end;
    rk_group_end_begin(&end);
    int result = original();
    rk_group_end_finish(&end, &LIBRARY, result);
    return result;
}

/* A call that all ranks of a group make together, timed by the host, with what comes after it. */
#define ON_ALL_RANKS(row, parameters, arguments, after)                                            \
    WRAP(row, parameters)                                                                          \
    {                                                                                              \
        FIND_ORIGINAL(row);                                                                        \
        RK_SCOPE(scope);                                                                           \
        if (scope.slot != NULL && !rk_group_open()) {                                              \
            scope.op.hook = HOOK_ID(row);                                                          \
            rk_begin(&scope);                                                                      \
        }                                                                                          \
        int result = original arguments;                                                           \
        scope.returned = result == 0 || result == LIBRARY.in_progress;                             \
        if (scope.slot != NULL) {                                                                  \
            after;                                                                                 \
        }                                                                                          \
        return result;                                                                             \
    }

#define CREATED(where_, rank_, size_, name_)                                                       \
    rk_communicator_created(&(struct rk_new_communicator){.where = where_,                         \
                                                          .library = &LIBRARY,                     \
                                                          .original = (uintptr_t)original,         \
                                                          .rank = rank_,                           \
                                                          .size = size_,                           \
                                                          .name = name_},                          \
                            result)

struct WRAPPER(UNIQUE_ID) {
    char bytes[128];
};
#define UNIQUE_ID struct WRAPPER(UNIQUE_ID)
#define NAME_BY(id) rk_hash(RK_HASH_START, (id), sizeof(UNIQUE_ID))

ON_ALL_RANKS(INIT_RANK, (void **communicator, int ranks, UNIQUE_ID id, int rank),
             (communicator, ranks, id, rank), CREATED(communicator, rank, ranks, NAME_BY(&id)))
ON_ALL_RANKS(INIT_RANK_CONFIG,
             (void **communicator, int ranks, UNIQUE_ID id, int rank, void *config),
             (communicator, ranks, id, rank, config),
             CREATED(communicator, rank, ranks, NAME_BY(&id)))
ON_ALL_RANKS(INIT_RANK_SCALABLE,
             (void **communicator, int ranks, int rank, int ids, const UNIQUE_ID *id, void *config),
             (communicator, ranks, rank, ids, id, config),
             CREATED(communicator, rank, ranks, ids > 0 ? NAME_BY(id) : 0))
ON_ALL_RANKS(INIT_ALL, (void **communicators, int devices, const int *list),
             (communicators, devices, list),
             for (int i = 0; i < devices; i++) CREATED(&communicators[i], i, devices, 0))

WRAP(SPLIT, (void *communicator, int color, int key, void **child, void *config))
{
    FIND_ORIGINAL(SPLIT);
    if (rk_is_aborted(communicator))
        return REMOTE_ERROR;
    RK_SCOPE(scope);
    uint64_t name = scope.slot != NULL ? rk_split_name(communicator, color) : 0;
    if (scope.slot != NULL && !rk_group_open()) {
        scope.op.hook = HOOK_ID(SPLIT);
        scope.op.communicator = (int16_t)rk_transfer_communicator(
            scope.header, &LIBRARY, communicator, (uintptr_t)original);
        rk_begin(&scope);
    }
    int result = original(communicator, color, key, child, config);
    scope.returned = result == 0 || result == LIBRARY.in_progress;
    if (scope.slot != NULL)
        CREATED(child, -1, -1, name);
    return result;
}

WRAP(SHRINK, (void *communicator, int *gone, int gone_count, void **child, void *config, int flags))
{
    FIND_ORIGINAL(SHRINK);
    if (rk_is_aborted(communicator))
        return REMOTE_ERROR;
    RK_SCOPE(scope);
    uint64_t name = scope.slot != NULL ? rk_split_name(communicator, -3) : 0;
    if (scope.slot != NULL && !rk_group_open()) {
        scope.op.hook = HOOK_ID(SHRINK);
        rk_begin(&scope);
    }
    int result = original(communicator, gone, gone_count, child, config, flags);
    scope.returned = result == 0 || result == LIBRARY.in_progress;
    if (scope.slot != NULL)
        CREATED(child, -1, -1, name);
    return result;
}

#define ENDING(row, keeps)                                                                         \
    WRAP(row, (void *communicator))                                                                \
    {                                                                                              \
        FIND_ORIGINAL(row);                                                                        \
        if (keeps ? rk_is_aborted(communicator) : !rk_communicator_ends(communicator))             \
            return 0;                                                                              \
        RK_SCOPE(scope);                                                                           \
        if (scope.slot != NULL) {                                                                  \
            scope.op.hook = HOOK_ID(row);                                                          \
            rk_begin(&scope);                                                                      \
        }                                                                                          \
        int result = original(communicator);                                                       \
        scope.returned = result == 0 || result == LIBRARY.in_progress;                             \
        return result;                                                                             \
    }

ENDING(FINALIZE, true)
ENDING(DESTROY, false)
ENDING(ABORT, false)

WRAP(ASYNC_ERROR, (void *communicator, int *error))
{
    FIND_ORIGINAL(ASYNC_ERROR);
    if (rk_is_aborted(communicator)) {
        if (error != NULL)
            *error = REMOTE_ERROR;
        return 0;
    }
    return original(communicator, error);
}
