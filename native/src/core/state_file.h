/* The process's one shared-memory file: made whole, or not at all. */
#ifndef RELKIT_STATE_FILE_H
#define RELKIT_STATE_FILE_H

#include <sys/types.h>

#include "relkit/state_layout.h"

enum { RK_PATH_MAX = 4096 };

/* In place of an error number: the folder holds as many files as RELKIT_HOOK_FILES allows. */
enum { RK_TOO_MANY_FILES = 0 };

/* Where the parts are in the file that this process makes; readers take the header's word for it. The
 * process does not ask the header: that would be one more line of memory to wait for in each call. */
enum rk_parts {
    RK_HOOKS_AT = 4096,
    RK_COMMUNICATORS_AT = RK_HOOKS_AT + RK_MAX_HOOKS * (int)sizeof(struct rk_hook),
    RK_SLOTS_AT = RK_COMMUNICATORS_AT + RK_MAX_COMMUNICATORS * (int)sizeof(struct rk_communicator),
    RK_CAPTURES_AT = RK_SLOTS_AT + RK_MAX_SLOTS * (int)sizeof(struct rk_slot),
    RK_EVENTS_AT = RK_CAPTURES_AT + RK_MAX_CAPTURES * (int)sizeof(struct rk_capture),
    RK_PEERS_AT = RK_EVENTS_AT + RK_EVENT_COUNT * (int)sizeof(struct rk_event),
    RK_FILE_BYTES = RK_PEERS_AT + RK_MAX_PEERS * (int)sizeof(struct rk_peer),
};

/* Where a process's file is in a folder; -1: the path is too long. `path` has RK_PATH_MAX bytes. */
int rk_state_file_path(char *path, const char *directory, pid_t pid);

/* Leaves word, in an empty file, that this process records nothing, and why: an error number, or
 * RK_TOO_MANY_FILES. */
void rk_state_file_refuse(const char *directory, int why);

/* Creates <directory>/<pid>.rkhook with its space really allocated, and maps it.
 *
 * Returns NULL, with errno set, where that fails (full or read-only directory, file size limit):
 * the caller then records nothing. The header is filled except for `ready`, `rank`, `local_rank`,
 * `world_size` and the capture fields. */
struct rk_header *rk_state_file_create(const char *directory, const struct rk_hook *hooks,
                                       uint32_t hook_count);

/* Forgets the mapping (the file stays): for the child of a fork, and for tests. */
void rk_state_file_detach(struct rk_header *header);

static inline struct rk_hook *rk_hooks(struct rk_header *header)
{
    return (struct rk_hook *)((char *)header + RK_HOOKS_AT);
}

static inline struct rk_communicator *rk_communicators(struct rk_header *header)
{
    return (struct rk_communicator *)((char *)header + RK_COMMUNICATORS_AT);
}

static inline struct rk_slot *rk_slots(struct rk_header *header)
{
    return (struct rk_slot *)((char *)header + RK_SLOTS_AT);
}

static inline struct rk_event *rk_events(struct rk_header *header)
{
    return (struct rk_event *)((char *)header + RK_EVENTS_AT);
}

static inline struct rk_peer *rk_peers(struct rk_header *header)
{
    return (struct rk_peer *)((char *)header + RK_PEERS_AT);
}

static inline struct rk_capture *rk_captures(struct rk_header *header)
{
    return (struct rk_capture *)((char *)header + RK_CAPTURES_AT);
}

#endif
