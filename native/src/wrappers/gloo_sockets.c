/* Every TCP socket of gloo, connected or accepted, passes through one constructor. */
#include "hook.h"
#include "requests/release.h"

typedef void (*socket_constructor)(void *, int);

HOOK(GLOO_SOCKET, void, hook_socket, (void *socket, int fd))
{
    socket_constructor original = ORIGINAL(GLOO_SOCKET, socket_constructor);
    rk_release_note_socket(fd);
    original(socket, fd);
}
