/* Which gloo context belongs to which process group, and what the group is called.
 *
 * PyTorch builds a group in one go on one thread: the ProcessGroupGloo constructor connects one
 * context a device, and a little later ProcessGroup::setGroupName gives the job-wide name. So the
 * contexts connected on a thread wait for the next name on that thread. */
#include <string.h>

#include "../core/communicators.h"
#include "hook.h"

enum { UNNAMED_MAX = sizeof(((struct rk_thread_notes *)0)->unnamed) / sizeof(int32_t) };

/* rendezvous::Context: a vtable, then rank and size; in old gloo likewise. */
struct rendezvous_context {
    void *vtable;
    int32_t rank;
    int32_t size;
};

typedef void (*connect_function)(struct rendezvous_context *, void *, void *);

static int new_communicator(struct rk_header *header, const struct rendezvous_context *context)
{
    uint64_t address = (uint64_t)(uintptr_t)context;
    /* An address that comes round again is another group; so is one that a collective met first,
     * at the gloo::Context inside the rendezvous::Context. */
    rk_communicator_retire(header, address);
    rk_communicator_retire(header, address + 8);
    int index = rk_communicator_of(header, address, context->rank, context->size);
    struct rk_thread_notes *notes = rk_thread_notes();
    if (index >= 0 && notes->unnamed_count < UNNAMED_MAX)
        notes->unnamed[notes->unnamed_count++] = index;
    return index;
}

HOOK(GLOO_CONNECT, void, hook_connect,
     (struct rendezvous_context *context, void *store, void *device))
{
    connect_function original = ORIGINAL(GLOO_CONNECT, connect_function);
    if (original == NULL)
        return;
    RK_SCOPE(scope);
    if (scope.slot != NULL) {
        scope.op.hook = RK_HOOK_GLOO_CONNECT;
        scope.op.communicator = (int16_t)new_communicator(scope.header, context);
        rk_begin(&scope);
    }
    original(context, store, device);
    scope.returned = true;
}

typedef void (*group_constructor)(void *, void *, int, int, void *);

HOOK(C10D_GLOO_GROUP, void, hook_gloo_group,
     (void *group, void *store, int rank, int size, void *options))
{
    group_constructor original = ORIGINAL(C10D_GLOO_GROUP, group_constructor);
    if (original == NULL)
        return;
    /* A group built by hand may never be named: the next one's name is not for it. */
    rk_thread_notes()->unnamed_count = 0;
    original(group, store, rank, size, options);
}

/* std::string of libstdc++'s C++11 ABI, which the mangled name (__cxx11) vouches for. */
struct cxx11_string {
    const char *text;
    uint64_t length;
};

typedef void (*name_setter)(void *, const struct cxx11_string *);

HOOK(C10D_GROUP_NAME, void, hook_group_name, (void *group, const struct cxx11_string *name))
{
    name_setter original = ORIGINAL(C10D_GROUP_NAME, name_setter);
    if (original == NULL)
        return;
    struct rk_thread_notes *notes = rk_thread_notes();
    struct rk_header *header = atomic_load_explicit(&rk_state, memory_order_acquire);
    for (uint32_t i = 0; header != NULL && i < notes->unnamed_count; i++)
        rk_communicator_name(header, notes->unnamed[i], name->text, name->length);
    notes->unnamed_count = 0;
    original(group, name);
}
