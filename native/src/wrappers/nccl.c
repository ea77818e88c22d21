#include "device/aborts.h"
#include "device_hook.h"
#include "transfers/transfer_groups.h"
#include "transfers/transfers.h"

static struct rk_transfer_library nccl = {.count = "ncclCommCount",
                                          .rank = "ncclCommUserRank",
                                          .abort = "ncclCommAbort",
                                          .in_progress = 7};

#define ROWS NCCL
#define LIBRARY nccl
#define CALL_VENDOR(hook) rk_platform_of_call(hook)

#include "nccl_hooks.h"

/* RCCL's own. */
#undef ROWS
#define ROWS RCCL

TRANSFER(ALLTOALL, RK_TRANSFER_COLLECTIVE,
         (const void *in, void *out, size_t count, int type, void *communicator, void *stream),
         (in, out, count, type, communicator, stream), count, type, -1, RANKS_TIMES)
/* The counts are per rank, and the number of ranks is not among the arguments: no size. */
TRANSFER(ALLTOALLV, RK_TRANSFER_COLLECTIVE,
         (const void *in, const size_t *in_counts, const size_t *in_places, void *out,
          const size_t *out_counts, const size_t *out_places, int type, void *communicator,
          void *stream),
         (in, in_counts, in_places, out, out_counts, out_places, type, communicator, stream), 0,
         type, -1, AS_IT_IS)
