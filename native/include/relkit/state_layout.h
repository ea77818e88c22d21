/* Layout of the shared-memory file <pid>.rkhook, version 5. docs/log-format.md explains it and
 * relkit/hook/layout.py reads it; a test compares that file with this one field by field.
 *
 * The process writes, other processes only read. Words that change while others look are atomic
 * 64-bit or 32-bit words, so that a reader with the seqlock rules below never sees half of one. */
#ifndef RELKIT_STATE_LAYOUT_H
#define RELKIT_STATE_LAYOUT_H

#include <stdatomic.h>
#include <stdint.h>

#define RK_MAGIC "RELKHOOK"
#define RK_STATE_SUFFIX ".rkhook"
#define RK_ENDIAN 0x01020304u
#define RK_VERSION 5u

enum {
    RK_MAX_HOOKS = 256,
    RK_MISSING_WORDS = RK_MAX_HOOKS / 64,
    RK_MAX_COMMUNICATORS = 512,
    RK_MAX_SLOTS = 128,
    RK_RING_LENGTH = 64,
    RK_MAX_CAPTURES = 256,
    RK_CAPTURE_DEPTH = 128,
    RK_OP_WORDS = 8,
    RK_EVENT_COUNT = 4096,
    RK_MAX_PEERS = 1024,
    RK_PEER_SIZES = 4,
};

/* Same numbers as relkit.hook.model.OpKind; INTERNAL rows are hooked but are no operations. */
enum rk_kind {
    RK_INTERNAL = 0,
    RK_COLLECTIVE = 1,
    RK_P2P = 2,
    RK_GEMM = 3,
    RK_KERNEL = 4,
    RK_MEMORY = 5,
    RK_MARK = 6, /* a step begins, or a stretch of time has a reason */
    RK_WAIT = 7, /* the host waits for a device */
};

enum rk_op_flags {
    RK_OP_FAILED = 1u,
    RK_OP_DEVICE = 2u,    /* start and end are the device's */
    RK_OP_QUEUED = 4u,    /* in flight: the device has not begun it; start_ns is enqueue_ns */
    RK_OP_RECEIVES = 8u,  /* of a transfer that has a number: it receives, else it sends */
    RK_OP_POST_SHIFT = 8, /* above it: which post of the process a gloo transfer is */
};

/* Bits of `platforms`: a library of it was seen in the process. */
enum rk_platform {
    RK_PLATFORM_CPU = 0,
    RK_PLATFORM_CUDA = 1,
    RK_PLATFORM_MACA = 2,
    RK_PLATFORM_HIP = 3,
    RK_PLATFORM_ASCEND = 4,
    RK_PLATFORM_COUNT = 5,
};

/* Bits of `hook_notes`: what the hook could not see or do. */
enum rk_note {
    RK_NOTE_STATIC_CUDART = 1u,  /* no libcudart: linked in statically, or the driver used alone */
    RK_NOTE_SECOND_RUNTIME = 2u, /* two runtimes of one platform in the process */
    RK_NOTE_NO_POLLER = 4u,      /* the thread that times device operations could not start */
};

/* Why capture_signal is 0. */
enum rk_capture_note {
    RK_CAPTURE_READY = 0,
    RK_CAPTURE_UNWINDER_LOCKS = 1, /* unwinding would take the loader's lock in a signal handler */
    RK_CAPTURE_NO_SIGNAL = 2,      /* the program uses every real-time signal itself */
};

struct rk_op {
    uint64_t start_ns; /* CLOCK_MONOTONIC; 0 = no operation */
    uint64_t end_ns;   /* 0 while in flight */
    int64_t seq;       /* of a transfer, among those of its rk_peer; -1 where there is none */
    uint64_t size_bytes;
    uint32_t tid;
    uint16_t hook;        /* index into the hook table */
    int16_t communicator; /* index into the communicator table, -1 for none */
    uint32_t flags;       /* rk_op_flags */
    int32_t peer;         /* rank in the group: root of a rooted collective, -1 for none */
    uint64_t
        flops; /* multiply and add count two, 0 where the call does not say; of a transfer: its tag */
    uint64_t enqueue_ns; /* of a device operation: when the host enqueued it; 0 = ran on the host */
};

/* An operation as the words in which it is stored. */
typedef struct {
    _Atomic uint64_t word[RK_OP_WORDS];
} rk_op_words;

/* One row per hooked symbol, so that a reader needs no copy of native/src/table/table.h. */
struct rk_hook {
    uint32_t kind;     /* rk_kind */
    uint32_t required; /* 1 = every supported PyTorch has it */
    char name[24];     /* short name, NUL-terminated */
    char platform[8];
    char symbol[216]; /* as the dynamic linker knows it */
};

struct rk_communicator {
    _Atomic uint64_t context; /* address in the process; 0 = free, 1 = destroyed */
    int32_t rank;
    int32_t size;
    _Atomic int64_t seq;      /* newest collective started, -1 for none */
    _Atomic uint64_t started; /* collectives started */
    _Atomic uint32_t ready;   /* rank and size may be read */
    _Atomic uint32_t named;   /* length of name, stored after the name */
    char name[88];
};

/* The sends to one peer, or the receives from one, in one group and with one tag: how many the program
 * has called. Both ends count alike, so the n-th send of one is the n-th receive of the other. */
struct rk_peer {
    _Atomic uint64_t key;    /* rk_peer_key; 0 = free */
    _Atomic uint64_t posted; /* calls */
    _Atomic uint64_t done;   /* of those: ended well; where the host waits for them, waited for */
    uint64_t reserved;
    _Atomic uint64_t size_bytes[RK_PEER_SIZES]; /* of call i at i % RK_PEER_SIZES */
};

/* Bits of `key`: 63 in use, 62 receives, 52-61 communicator, 32-51 peer (rank in the group), 0-31 tag. */
enum rk_peer_key {
    RK_PEER_TAG_BITS = 32,
    RK_PEER_RANK_BITS = 20,
    RK_PEER_COMMUNICATOR_BITS = 10,
};

/* One per thread that is inside, or has been inside, a hooked call.
 *
 * flight is a seqlock: flight_seq is odd while flight changes. ring[i % RK_RING_LENGTH] holds
 * operation i for i < finished; the writer fills an entry before it counts it, so that a reader
 * which sees `finished` before and after its copy knows which entries were left alone. */
struct rk_slot {
    _Atomic uint32_t owner; /* thread id, 0 = free */
    uint32_t reserved0;
    _Atomic uint64_t started;
    _Atomic uint64_t finished;
    _Atomic uint64_t last_finish_ns;
    _Atomic uint64_t flight_seq;
    _Atomic uint64_t counted; /* operations too small to time: neither in flight nor in the ring */
    uint64_t reserved1[2];
    rk_op_words flight;
    rk_op_words ring[RK_RING_LENGTH];
};

/* One captured thread; `seq` is odd while it is written. */
struct rk_capture {
    _Atomic uint32_t seq;
    _Atomic uint32_t generation; /* of the request that it answers */
    _Atomic uint32_t tid;
    _Atomic uint32_t depth;
    _Atomic uint32_t truncated;
    uint32_t reserved;
    _Atomic uint64_t begin_ns; /* handler entered and left, CLOCK_MONOTONIC */
    _Atomic uint64_t end_ns;
    uint64_t reserved1[3];
    _Atomic uint64_t
        address[RK_CAPTURE_DEPTH]; /* innermost first; all but the first are return addresses */
};

/* A finished collective, send, receive or mark, in the order in which they ended.
 *
 * events_begun counts entries that were taken; entry i is in row i % RK_EVENT_COUNT and whole
 * where its ticket is i + 1 before and after the copy. */
struct rk_event {
    _Atomic uint64_t ticket;
    rk_op_words op;
    _Atomic uint64_t busy_ns; /* rk_header.busy_ns then */
};

struct rk_header {
    char magic[8];
    uint32_t endian;
    uint32_t version;
    uint32_t header_bytes, hook_bytes, communicator_bytes, slot_bytes, op_bytes, capture_bytes;
    uint32_t hook_count, communicator_count, slot_count, ring_length, capture_count, capture_depth;
    uint64_t hooks_at, communicators_at, slots_at, captures_at, file_bytes;
    int32_t pid, rank, local_rank, world_size;
    uint64_t start_ticks; /* /proc/PID/stat field 22 */
    uint64_t anchor_monotonic_ns, anchor_realtime_ns;
    _Atomic int32_t capture_signal;             /* 0 = cannot capture */
    _Atomic uint32_t capture_note;              /* rk_capture_note */
    _Atomic uint64_t missing[RK_MISSING_WORDS]; /* bit i: hook i has no original in its library */
    _Atomic uint64_t slots_used;                /* slots at and above this were never claimed */
    _Atomic uint64_t dropped;                   /* operations not recorded: a table was full */
    _Atomic uint64_t unresolved;                /* calls that could not be passed on */
    _Atomic uint32_t tags_doubted; /* 1 = collectives are counted, not read from gloo's tags */
    _Atomic uint32_t tickets;      /* captures begun */
    _Atomic uint32_t released_generation;
    _Atomic uint32_t released;      /* sockets shut by that request */
    _Atomic uint32_t ready;         /* stored last */
    _Atomic int32_t request_signal; /* takes release requests too; 0 = none */
    _Atomic uint32_t platforms;     /* bits by rk_platform */
    _Atomic uint32_t hook_notes;    /* rk_note */
    uint64_t events_at;
    uint32_t event_bytes, event_count;
    _Atomic uint64_t events_begun;
    _Atomic uint64_t busy_ns; /* spent in timed matrix products and kernels, all threads */
    uint64_t peers_at;
    uint32_t peer_bytes, peer_count;
    _Atomic uint64_t peers_dropped; /* transfers that found no rk_peer, and have no number */
    uint64_t pid_namespace;         /* inode of the namespace in which it is `pid`; 0 = not known */
};

/* What a request carries in the signal's value: kind and magic above the generation, so that a
 * stray signal of the same number does nothing. */
#define RK_REQUEST_MAGIC 0x524bu
enum rk_request { RK_REQUEST_CAPTURE = 1, RK_REQUEST_RELEASE = 2 };

_Static_assert(sizeof(struct rk_op) == RK_OP_WORDS * 8, "an operation is stored as whole words");
_Static_assert(sizeof(struct rk_hook) == 256, "hook rows");
_Static_assert(sizeof(struct rk_communicator) == 128, "communicator rows");
_Static_assert(sizeof(struct rk_slot) == 128 + 64 * RK_RING_LENGTH, "slots");
_Static_assert(sizeof(struct rk_event) == 80, "events");
_Static_assert(sizeof(struct rk_peer) == 64, "peers");
_Static_assert(RK_MAX_COMMUNICATORS <= 1 << RK_PEER_COMMUNICATOR_BITS, "peers name communicators");
_Static_assert(sizeof(struct rk_capture) == 64 + 8 * RK_CAPTURE_DEPTH, "captures");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "readers in other processes share no lock");

#endif
