/* Ranks as text. */
#ifndef RELKIT_MERGE_FOLD_H
#define RELKIT_MERGE_FOLD_H

#include <stdint.h>

enum fold_form {
    FOLD_EXACT = 0,   /* every interval: `0-3/7` */
    FOLD_STRIDED = 1, /* and `0-98:2` for three or more single ranks at equal steps */
};

enum { FOLD_ITEM = 64 }; /* no item is longer, its separator included */

/* Write ranks as text, without an end mark. Bit N of `bits`, lowest bit of a byte first, is rank N.
 * Returns the characters written, or UINT64_MAX where `room` is too little: it is enough where each
 * item has FOLD_ITEM of it. */
uint64_t fold_bits(const uint8_t *bits, uint64_t size, enum fold_form form, char separator,
                   char *text, uint64_t room);

#endif
