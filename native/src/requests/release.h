/* Makes blocked gloo collectives return with an error, so that survivors can save. */
#ifndef RELKIT_RELEASE_H
#define RELKIT_RELEASE_H

#include <stdint.h>

/* Notes a socket that gloo has just wrapped. */
void rk_release_note_socket(int fd);

/* The child of a fork shares its parent's sockets, and must never shut them. */
void rk_release_after_fork(void);

/* Shuts down gloo's connected sockets. Async-signal-safe. Returns how many. */
uint32_t rk_release_sockets(void);

#endif
