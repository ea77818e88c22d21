/* CRC32C (Castagnoli), as iSCSI, ext4 and NVMe use it. */
#ifndef RELKIT_SLOTS_CRC32C_H
#define RELKIT_SLOTS_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Continue a checksum; 0 starts one. Uses the processor's instruction where it has one. */
uint32_t crc32c(uint32_t checksum, const void *data, size_t size);

/* The same by tables, on any processor. */
uint32_t crc32c_by_table(uint32_t checksum, const void *data, size_t size);

/* Whether crc32c() uses an instruction. */
bool crc32c_in_hardware(void);

#endif
