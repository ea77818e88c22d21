/* Reads sequence number, size and group out of gloo's options objects. */
#ifndef RELKIT_GLOO_OPTIONS_H
#define RELKIT_GLOO_OPTIONS_H

#include "core/recorder.h"
#include "table/table.h"

/* Fills communicator, seq, size_bytes and peer of scope->op from the options of a collective. */
void rk_gloo_describe(struct rk_scope *scope, enum rk_hook_id hook, const void *options);

/* Size of a gloo::transport::UnboundBuffer. */
uint64_t rk_gloo_buffer_bytes(const void *buffer);

#endif
