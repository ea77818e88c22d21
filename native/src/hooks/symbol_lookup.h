/* Programs that look device functions up by name get our wrappers too. */
#ifndef RELKIT_HOOKS_SYMBOL_LOOKUP_H
#define RELKIT_HOOKS_SYMBOL_LOOKUP_H

#include <stdint.h>

/* What a program is to be given for what cuGetProcAddress found: our wrapper, or the function. */
void *rk_driver_wrapper(const char *symbol, void *function, int version, uint64_t flags);

#endif
