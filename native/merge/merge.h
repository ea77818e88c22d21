/* The interface that relkit/stacks/native_merge.py loads. No function keeps a pointer it is given,
 * and none may be called on one context from two threads at a time. */
#ifndef RELKIT_MERGE_H
#define RELKIT_MERGE_H

#include "context.h"
#include "lines.h"

#define RKM_EXPORT __attribute__((visibility("default")))

enum { RKM_ABI = 6 };

/* One distinct thing and who has it; pointers are valid until the next rkm_read or rkm_add. */
struct rkm_item {
    uint32_t kind; /* enum tally_kind */
    uint32_t role; /* of TALLY_THREAD: these four as in struct tally_key */
    uint32_t fallback;
    uint32_t native_name;
    uint32_t python_name;
    uint32_t first;  /* native stack, or the text of a state or note */
    uint32_t second; /* Python stack; UINT32_MAX for none */
    uint32_t name_count;
    uint64_t threads;
    uint64_t interval_count;
    const int32_t *intervals; /* inclusive (low, high) pairs */
    uint32_t names[TALLY_NAMES];
};

enum rkm_table { RKM_TEXTS = 0, RKM_FRAMES = 1 };

/* The version of this interface, RKM_ABI. */
RKM_EXPORT uint32_t rkm_abi(void);

/* An empty context that allocates at most `budget_bytes`; NULL where even that fails. */
RKM_EXPORT struct merge_context *rkm_new(uint64_t budget_bytes);

RKM_EXPORT void rkm_free(struct merge_context *context);

/* Read `count` files of an open folder. `names`: base names, each ended by a NUL. */
RKM_EXPORT void rkm_read(struct merge_context *context, int folder, const char *names,
                         uint32_t count, struct merge_head *heads);

/* The same for bytes in memory; returns the status. */
RKM_EXPORT int32_t rkm_add(struct merge_context *context, const uint8_t *data, uint64_t size,
                           const char *name, struct merge_head *head);

/* Number of distinct things, and one of them. */
RKM_EXPORT uint32_t rkm_item_count(const struct merge_context *context);
RKM_EXPORT void rkm_item(const struct merge_context *context, uint32_t index,
                         struct rkm_item *item);

/* One distinct text or frame; returns its bytes, or NULL where there is no such number. A frame is
 * three times (size, bytes): func, source, and a mark that is empty where C code entered the
 * interpreter for it. */
RKM_EXPORT const uint8_t *rkm_bytes(const struct merge_context *context, uint32_t table,
                                    uint32_t number, uint32_t *size);

/* The frames of one distinct stack, innermost first, by number; valid until the next call. Returns the
 * status: MERGE_UNREADABLE where there is no such stack, MERGE_OUT_OF_MEMORY where they do not fit. */
RKM_EXPORT int32_t rkm_stack(struct merge_context *context, uint32_t number,
                             const uint32_t **frames, uint32_t *count);

/* Set the bits of ranks: inclusive (low, high) pairs, in any order. Bit N, lowest bit of a byte
 * first, is rank N. Returns 0 where a rank has no place in `size` bytes, else 1. */
RKM_EXPORT int32_t rkm_pack(const int32_t *intervals, uint64_t count, uint8_t *bits, uint64_t size);

/* Write ranks as text, without an end mark: `0-3/7`, and `0-98:2` for three or more single ranks
 * at equal steps. Bit N of `bits`, lowest bit of a byte first, is rank N. Returns the characters
 * written, or UINT64_MAX where `room` is too little: it is enough where each item has 64. */
RKM_EXPORT uint64_t rkm_fold(const uint8_t *bits, uint64_t size, char separator, char *text,
                             uint64_t room);

/* Write the folded text of a tree to an open file; returns 0 or an errno. The caller's file offset
 * is used, and nothing else of this library: any thread may write any tree. */
RKM_EXPORT int32_t rkm_write_lines(int file, const struct rkm_lines *lines);

#endif
