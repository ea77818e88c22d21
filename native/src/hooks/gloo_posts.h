/* What a gloo send or receive is: known when it is posted, asked when it is waited for. */
#ifndef RELKIT_HOOKS_GLOO_POSTS_H
#define RELKIT_HOOKS_GLOO_POSTS_H

#include "core/recorder.h"

/* A transport context was built for the group that this thread connects. */
void rk_gloo_note_transport(const void *transport);

/* The program posts a send, or a receive, of `bytes` bytes of a buffer, from `offset` on; RK_REST_OF_BUFFER:
 * all of them. A negative peer: whoever sends first. */
void rk_gloo_note_post(const void *buffer, bool receives, int peer, uint64_t tag, uint64_t offset,
                       uint64_t bytes);

#define RK_REST_OF_BUFFER UINT64_MAX

/* Fills in what a wait is for, as far as its post was seen. */
void rk_gloo_describe_wait(struct rk_op *op, const void *buffer);

/* A receive from anybody has come to its end: counts it as one from that peer. */
void rk_gloo_note_sender(struct rk_header *header, struct rk_op *op, int peer);

#endif
