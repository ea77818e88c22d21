/* The scenes that need the runtime alone. */
#include <stddef.h>

#include "client.h"
#include "scenes.h"

const struct scene scenes[] = {{"launches", launches}, {"forks", forks}, {NULL, NULL}};
