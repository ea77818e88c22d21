#include "device/poller.h"
#include "device_hook.h"

#define VENDOR RK_PLATFORM_MACA
#define ROWS MACA
#define ABSENT 100 /* no device */

#include "runtime_hooks.h"

#include "module_hooks.h"
