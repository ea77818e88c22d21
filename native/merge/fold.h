/* Ranks as text. */
#ifndef RELKIT_MERGE_FOLD_H
#define RELKIT_MERGE_FOLD_H

#include <stdint.h>

/* What rkm_fold promises. */
uint64_t fold_bits(const uint8_t *bits, uint64_t size, char separator, char *text, uint64_t room);

#endif
