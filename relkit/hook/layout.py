"""Layout of the recorder's shared-memory file; native/include/relkit/state_layout.h in numpy.

docs/log-format.md explains it; tests/native compares this file with the C structures.
"""

from __future__ import annotations

from typing import Any

import numpy as np

VERSION = 5
MAGIC = b"RELKHOOK"
ENDIAN = 0x01020304

# Upper limits of what a file may claim of itself, so that a hostile one costs no memory.
MAX_FILE_BYTES = 8 << 20
MAX_HOOKS = 256

HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("endian", "<u4"),
        ("version", "<u4"),
        ("header_bytes", "<u4"),
        ("hook_bytes", "<u4"),
        ("communicator_bytes", "<u4"),
        ("slot_bytes", "<u4"),
        ("op_bytes", "<u4"),
        ("capture_bytes", "<u4"),
        ("hook_count", "<u4"),
        ("communicator_count", "<u4"),
        ("slot_count", "<u4"),
        ("ring_length", "<u4"),
        ("capture_count", "<u4"),
        ("capture_depth", "<u4"),
        ("hooks_at", "<u8"),
        ("communicators_at", "<u8"),
        ("slots_at", "<u8"),
        ("captures_at", "<u8"),
        ("file_bytes", "<u8"),
        ("pid", "<i4"),
        ("rank", "<i4"),
        ("local_rank", "<i4"),
        ("world_size", "<i4"),
        ("start_ticks", "<u8"),
        ("anchor_monotonic_ns", "<u8"),
        ("anchor_realtime_ns", "<u8"),
        ("capture_signal", "<i4"),
        ("capture_note", "<u4"),
        ("missing", "<u8", (4,)),
        ("slots_used", "<u8"),
        ("dropped", "<u8"),
        ("unresolved", "<u8"),
        ("tags_doubted", "<u4"),
        ("tickets", "<u4"),
        ("released_generation", "<u4"),
        ("released", "<u4"),
        ("ready", "<u4"),
        ("request_signal", "<i4"),
        ("platforms", "<u4"),
        ("hook_notes", "<u4"),
        ("events_at", "<u8"),
        ("event_bytes", "<u4"),
        ("event_count", "<u4"),
        ("events_begun", "<u8"),
        ("busy_ns", "<u8"),
        ("peers_at", "<u8"),
        ("peer_bytes", "<u4"),
        ("peer_count", "<u4"),
        ("peers_dropped", "<u8"),
        ("pid_namespace", "<u8"),
    ]
)

OP = np.dtype(
    [
        ("start_ns", "<u8"),
        ("end_ns", "<u8"),
        ("seq", "<i8"),
        ("size_bytes", "<u8"),
        ("tid", "<u4"),
        ("hook", "<u2"),
        ("communicator", "<i2"),
        ("flags", "<u4"),
        ("peer", "<i4"),
        ("flops", "<u8"),  # of a transfer: its tag
        ("enqueue_ns", "<u8"),
    ]
)

OP_FAILED = 1
OP_DEVICE = 2
OP_QUEUED = 4
OP_RECEIVES = 8
OP_POST_SHIFT = 8

# A finished collective, send, receive or mark; `op` of the C structure is spread out.
EVENT = np.dtype([("ticket", "<u8"), *OP.descr, ("busy_ns", "<u8")])
EVENT_COUNT = 4096

PEER_SIZES = 4

PEER = np.dtype(
    [
        ("key", "<u8"),
        ("posted", "<u8"),
        ("done", "<u8"),
        ("reserved", "<u8"),
        ("size_bytes", "<u8", (PEER_SIZES,)),
    ]
)

# Bits of `key` in PEER: 63 in use, 62 receives, then communicator, peer and tag.
PEER_TAG_BITS = 32
PEER_RANK_BITS = 20
PEER_COMMUNICATOR_BITS = 10

# Bits of `platforms` and of `hook_notes`.
PLATFORMS = ("cpu", "cuda", "maca", "hip", "ascend")
HOOK_NOTES = {
    1: "libcudart is not loaded: the CUDA runtime is linked statically, or not used",
    2: "two runtimes of one platform are in the process",
    4: "the thread that times device operations could not start",
}

HOOK = np.dtype(
    [
        ("kind", "<u4"),
        ("required", "<u4"),
        ("name", "S24"),
        ("platform", "S8"),
        ("symbol", "S216"),
    ]
)

COMMUNICATOR = np.dtype(
    [
        ("context", "<u8"),
        ("rank", "<i4"),
        ("size", "<i4"),
        ("seq", "<i8"),
        ("started", "<u8"),
        ("ready", "<u4"),
        ("named", "<u4"),
        ("name", "V88"),
    ]
)

RING_LENGTH = 64

SLOT = np.dtype(
    [
        ("owner", "<u4"),
        ("reserved0", "<u4"),
        ("started", "<u8"),
        ("finished", "<u8"),
        ("last_finish_ns", "<u8"),
        ("flight_seq", "<u8"),
        ("counted", "<u8"),
        ("reserved1", "<u8", (2,)),
        ("flight", OP),
        ("ring", OP, (RING_LENGTH,)),
    ]
)

CAPTURE_DEPTH = 128

CAPTURE = np.dtype(
    [
        ("seq", "<u4"),
        ("generation", "<u4"),
        ("tid", "<u4"),
        ("depth", "<u4"),
        ("truncated", "<u4"),
        ("reserved", "<u4"),
        ("begin_ns", "<u8"),
        ("end_ns", "<u8"),
        ("reserved1", "<u8", (3,)),
        ("address", "<u8", (CAPTURE_DEPTH,)),
    ]
)

# Requests travel in the value of the signal: magic, kind, generation.
REQUEST_MAGIC = 0x524B
REQUEST_CAPTURE = 1
REQUEST_RELEASE = 2

CAPTURE_NOTES = {
    0: "",
    1: "this C library (before glibc 2.35) cannot find unwind tables without a lock",
    2: "the program uses every real-time signal itself",
}

NUMPY_SIZES: dict[str, Any] = {
    "header_bytes": HEADER.itemsize,
    "hook_bytes": HOOK.itemsize,
    "communicator_bytes": COMMUNICATOR.itemsize,
    "slot_bytes": SLOT.itemsize,
    "op_bytes": OP.itemsize,
    "capture_bytes": CAPTURE.itemsize,
    "event_bytes": EVENT.itemsize,
    "peer_bytes": PEER.itemsize,
    "ring_length": RING_LENGTH,
    "capture_depth": CAPTURE_DEPTH,
}


def offset_of(structure: np.dtype[Any], field: str) -> int:
    """Where a field starts in a structure, in bytes."""
    assert structure.fields is not None
    return int(structure.fields[field][1])
