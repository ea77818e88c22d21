/* What every wrapper is made of.
 *
 * A wrapper is a C function that carries the mangled name of a C++ one (HOOK), finds the original
 * for its caller (ORIGINAL), opens a scope, calls, and marks the scope as returned. An exception
 * that the original throws unwinds through the wrapper: these files are compiled with
 * -fexceptions, so the scope's cleanup runs and the operation is closed as failed. */
#ifndef RELKIT_HOOK_H
#define RELKIT_HOOK_H

#include <stddef.h>

#include "core/recorder.h"
#include "lifecycle.h"
#include "loader/resolve.h"
#include "table/hook_rows.h"

/* Defines `result function arguments` under the row's symbol, exported. */
#define HOOK(id, result, function, arguments)                                                      \
    result function arguments __asm__(RK_SYMBOL_##id) __attribute__((visibility("default")));      \
    result function arguments

/* NULL only where the program could not have made this call without the hook: it then does
 * nothing, and is counted in the header. */
#define ORIGINAL(id, type)                                                                         \
    (rk_initialise(), (type)rk_original_of(RK_HOOK_##id, __builtin_return_address(0)))

#endif
