/* Who the other side of a gloo send or receive is: known when it is posted, asked when it is waited for. */
#ifndef RELKIT_HOOKS_GLOO_POSTS_H
#define RELKIT_HOOKS_GLOO_POSTS_H

void rk_gloo_note_post(const void *buffer, int peer);

/* -1 where it is not known. */
int rk_gloo_peer_of(const void *buffer);

#endif
