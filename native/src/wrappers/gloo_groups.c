/* Which gloo context belongs to which process group, and what the group is called.
 *
 * PyTorch builds a group in one go on one thread: the ProcessGroupGloo constructor connects one
 * context a device, and a little later ProcessGroup::setGroupName gives the job-wide name. So the
 * contexts that the newest constructor connected wait for the next name on its thread; those of
 * an older one, built by hand and never named, do not get it.
 *
 * With TORCH_DISTRIBUTED_DEBUG=DETAIL there are two constructors before the name: the group itself
 * and a helper, on which every call is checked first. A ProcessGroupWrapper of the two says which
 * is which. */
#include <string.h>

#include "core/communicators.h"
#include "hook.h"

#define HELPER_SUFFIX "/checks"

enum { NAME_MAX_BYTES = 88, UNNAMED_MAX = 8 };

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
    if (index >= 0) {
        if (notes->unnamed_count == UNNAMED_MAX)
            notes->unnamed_count = 0; /* all of groups that were never named */
        notes->unnamed[notes->unnamed_count].group = notes->group;
        notes->unnamed[notes->unnamed_count++].communicator = index;
    }
    return index;
}

HOOK(GLOO_CONNECT, void, hook_connect,
     (struct rendezvous_context * context, void *store, void *device))
{
    connect_function original = ORIGINAL(GLOO_CONNECT, connect_function);
    RK_SCOPE(scope);
    if (scope.slot != NULL) {
        scope.op.hook = RK_HOOK_GLOO_CONNECT;
        scope.op.communicator = (int16_t)new_communicator(scope.header, context);
        rk_thread_notes()->connecting = scope.op.communicator + 1;
        rk_begin(&scope);
    }
    original(context, store, device);
    scope.returned = true;
    rk_thread_notes()->connecting = 0;
}

typedef void (*group_constructor)(void *, void *, int, int, void *);

HOOK(C10D_GLOO_GROUP, void, hook_gloo_group,
     (void *group, void *store, int rank, int size, void *options))
{
    group_constructor original = ORIGINAL(C10D_GLOO_GROUP, group_constructor);
    rk_thread_notes()->group = group;
    rk_thread_notes()->helper = NULL;
    original(group, store, rank, size, options);
}

/* Both arguments are references to intrusive_ptr, which is one pointer. */
typedef void (*wrapper_constructor)(void *, void *const *, void *const *);

HOOK(C10D_CHECKED_GROUP, void, hook_checked_group,
     (void *wrapper, void *const *backend, void *const *helper))
{
    wrapper_constructor original = ORIGINAL(C10D_CHECKED_GROUP, wrapper_constructor);
    rk_thread_notes()->group = *backend;
    rk_thread_notes()->helper = *helper;
    original(wrapper, backend, helper);
}

/* std::string of libstdc++'s C++11 ABI, which the mangled name (__cxx11) vouches for. */
struct cxx11_string {
    const char *text;
    uint64_t length;
};

static void name_groups(struct rk_header *header, const char *text, uint64_t length)
{
    struct rk_thread_notes *notes = rk_thread_notes();
    char checked[NAME_MAX_BYTES + sizeof HELPER_SUFFIX];
    uint64_t kept = length < NAME_MAX_BYTES ? length : NAME_MAX_BYTES;
    memcpy(checked, text, kept);
    memcpy(checked + kept, HELPER_SUFFIX, sizeof HELPER_SUFFIX);
    for (uint32_t i = 0; i < notes->unnamed_count; i++) {
        int index = notes->unnamed[i].communicator;
        if (notes->unnamed[i].group == notes->group)
            rk_communicator_name(header, index, text, length);
        else if (notes->helper != NULL && notes->unnamed[i].group == notes->helper)
            rk_communicator_name(header, index, checked, kept + sizeof HELPER_SUFFIX - 1);
    }
    notes->unnamed_count = 0;
    notes->group = notes->helper = NULL;
}

typedef void (*name_setter)(void *, const struct cxx11_string *);

HOOK(C10D_GROUP_NAME, void, hook_group_name, (void *group, const struct cxx11_string *name))
{
    name_setter original = ORIGINAL(C10D_GROUP_NAME, name_setter);
    struct rk_header *header = atomic_load_explicit(&rk_state, memory_order_acquire);
    if (header != NULL)
        name_groups(header, name->text, name->length);
    original(group, name);
}
