/* What every wrapper is made of.
 *
 * A wrapper is a C function that has the signature of the hooked one (HOOK), finds the function that it
 * stands for (ORIGINAL), opens a scope, calls, and marks the scope as returned. The files of this folder
 * are compiled RK_ENTRIES times, with RK_ENTRY from 0: each time all their wrappers come into being once
 * more, as the entries of loader/originals.h. What they have `static` is there as often.
 *
 * An exception that the original throws unwinds through the wrapper: these files are compiled with
 * -fexceptions, so the scope's cleanup runs and the operation is closed as failed. */
#ifndef RELKIT_HOOK_H
#define RELKIT_HOOK_H

#include <stddef.h>

#include "core/recorder.h"
#include "lifecycle.h"
#include "loader/originals.h"
#include "table/hook_rows.h"

#define RK_TEXT_(text) #text
#define RK_TEXT(text) RK_TEXT_(text)

/* Defines `result function arguments` as this entry of the row. */
#define HOOK_(id, result, function, arguments)                                                     \
    result function arguments __asm__("rk_entry_" #id "_" RK_TEXT(RK_ENTRY))                       \
        __attribute__((visibility("hidden")));                                                     \
    result function arguments
#define HOOK(id, result, function, arguments) HOOK_(id, result, function, arguments)

/* Never NULL: nobody is given an entry before it leads somewhere. */
#define ORIGINAL(id, type)                                                                         \
    (rk_initialise(RK_HOOK_##id), (type)rk_original_of(RK_HOOK_##id, RK_ENTRY))

#endif
