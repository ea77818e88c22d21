/* The scenes of CUDA, MACA and HIP. */
#include <stddef.h>

#include "client.h"
#include "scenes.h"

const struct scene scenes[] = {
    {"work", work},       {"graph", graph},         {"errors", errors}, {"many", many},
    {"forks", forks},     {"transfers", transfers}, {"hang", hang},     {"leaves", leaves},
    {"resets", resets},   {"streams", streams},
#ifndef SIM_OLD_CCL
    {"inits", inits},
#endif
    {"threads", threads},
#ifdef SIM_CUDA
    {"drivers", drivers},
#endif
    {NULL, NULL},
};
