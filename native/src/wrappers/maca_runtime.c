#include "device/poller.h"
#include "device_hook.h"

#define VENDOR RK_PLATFORM_MACA
#define ROWS MACA

#include "runtime_hooks.h"

#include "module_hooks.h"
