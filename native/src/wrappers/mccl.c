#include "device/aborts.h"
#include "device_hook.h"
#include "transfers/transfer_groups.h"
#include "transfers/transfers.h"

static struct rk_transfer_library mccl = {.count = "mcclCommCount",
                                          .rank = "mcclCommUserRank",
                                          .abort = "mcclCommAbort",
                                          .in_progress = 7};

#define ROWS MCCL
#define LIBRARY mccl
#define CALL_VENDOR(hook) RK_PLATFORM_MACA

#include "nccl_hooks.h"
