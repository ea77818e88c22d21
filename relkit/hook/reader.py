"""Reads what a process has recorded, while it runs or after its end, without touching it."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from relkit.hook import layout
from relkit.hook.model import Communicator, HookState, Op, OpKind, TransferCount
from relkit.hook.state_file import Rows, StateFile, open_state_file

# Of a process of another PID namespace than the launcher's, that namespace is in it as well.
_FILE_NAME = re.compile(r"([1-9][0-9]*)(?:\.([0-9]+))?\.rkhook")
_KINDS = {int(kind): kind for kind in OpKind}

# A slot that changes under every one of so many reads finishes operations all the time, and holds
# none that is stuck.
_TRIES = 16

# How many operations of each kind and group `recent` holds: matrix products, or a busy group, must
# not push out what another group did last.
RECENT_EACH = 32

# So many of the newest collectives, sends and receives are read from the events as well: matrix
# products, which are none, leave little room for them in a thread's own ring.
HISTORY = 256
_HISTORY_ROWS = 2 * HISTORY


def state_files(job_dir: Path) -> list[Path]:
    """The recorder files in a job's folder, by pid; empty where there is no such folder."""
    try:
        paths = {path: match for path in job_dir.iterdir() if (match := name_of(path))}
    except OSError:
        return []
    return sorted(paths, key=paths.__getitem__)


def name_of(path: Path) -> tuple[int, int] | None:
    """Process and PID namespace (0: the launcher's) by a recorder file's name; None for others."""
    match = _FILE_NAME.fullmatch(path.name)
    return None if match is None else (int(match[1]), int(match[2] or 0))


def read_state(path: Path, *, recent: bool = True, history: bool = True) -> HookState:
    """A consistent copy of one process's recorder.

    Works on a live process without stopping it, and on the file that a dead one has left.

    Args:
        path: a file that state_files found.
        recent: with the operations that finished last, which take most of the time to read.
        history: and with more of the collectives, sends and receives, and all counts of these.

    Raises:
        BadDump: the file is no recorder file, truncated, or of another version.
    """
    with open_state_file(path) as file:
        names, kinds = hooks_of(file)
        communicators = communicators_of(file)
        header = file.header
        used = min(
            file.word(layout.offset_of(layout.HEADER, "slots_used")), int(header["slot_count"])
        )
        slots = [_slot(file, index) for index in range(used)]
        newest = file.rows(0, layout.HEADER, 1)[0]
        events = _newest_events(file) if recent and history else []
        transfers = _transfers(file, len(communicators)) if recent and history else ()
    decode = _Decoder(names, kinds, len(communicators))
    flights: list[Any] = [flight.item() for _, flight, _ in slots if flight is not None]
    in_flight = decode.ops(flights)
    landed = {
        row
        for _, _, ring in slots
        if in_flight
        for row in zip(ring["tid"].tolist(), ring["start_ns"].tolist(), strict=True)
    }
    rings = [row for _, _, ring in slots if recent for row in ring.tolist()]
    counted = sum(int(slot["counted"]) for slot, _, _ in slots)
    finished = counted + sum(int(slot["finished"]) for slot, _, _ in slots)
    missing = sum(int(word) << 64 * place for place, word in enumerate(newest["missing"]))
    return HookState(
        pid=int(header["pid"]),
        start_ticks=int(header["start_ticks"]),
        rank=int(header["rank"]),
        local_rank=int(header["local_rank"]),
        world_size=int(header["world_size"]),
        now_ns=time.clock_gettime_ns(time.CLOCK_MONOTONIC),
        boot_to_unix_ns=int(header["anchor_realtime_ns"]) - int(header["anchor_monotonic_ns"]),
        started=max(finished, counted + sum(int(slot["started"]) for slot, _, _ in slots)),
        finished=finished,
        last_finish_ns=max((int(slot["last_finish_ns"]) for slot, _, _ in slots), default=0),
        # Between its entry in the ring and the end of its flight an operation is in both.
        in_flight=tuple(op for op in in_flight if (op.os_thread_id, op.start_ns) not in landed),
        recent=_joined(_newest(decode.ops(rings)), decode.ops(events)),
        communicators=communicators,
        missing=tuple(name for bit, name in enumerate(names) if missing >> bit & 1),
        dropped=int(newest["dropped"]),
        capture_signal=_signal(int(newest["capture_signal"])),
        counted=counted,
        platforms=tuple(
            name for bit, name in enumerate(layout.PLATFORMS) if int(newest["platforms"]) >> bit & 1
        ),
        notes=tuple(
            text for bit, text in layout.HOOK_NOTES.items() if int(newest["hook_notes"]) & bit
        ),
        transfers=transfers,
        uncounted=int(newest["peers_dropped"]),
        pid_namespace=int(newest["pid_namespace"]),
    )


def _signal(number: int) -> int:
    return number if 0 < number <= 64 else 0


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")


def hooks_of(file: StateFile) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Short names and kinds of the hook rows, by index."""
    count = min(int(file.header["hook_count"]), layout.MAX_HOOKS)
    return _hooks(file.rows(int(file.header["hooks_at"]), layout.HOOK, count).tobytes())


@lru_cache(maxsize=16)
def _hooks(raw: bytes) -> tuple[tuple[str, ...], tuple[int, ...]]:
    # The same table in every process, and every look.
    rows = np.frombuffer(raw, layout.HOOK)
    return tuple(_text(name) for name in rows["name"].tolist()), tuple(rows["kind"].tolist())


def communicators_of(file: StateFile) -> tuple[Communicator, ...]:
    """The process groups that are whole, by index."""
    rows = file.rows(
        int(file.header["communicators_at"]),
        layout.COMMUNICATOR,
        int(file.header["communicator_count"]),
    )
    communicators = []
    for index, row in enumerate(rows):
        if not int(row["context"]) or not int(row["ready"]):
            break
        communicators.append(
            Communicator(
                index=index,
                rank=int(row["rank"]),
                size=int(row["size"]),
                name=_text(bytes(row["name"])[: int(row["named"])]),
                seq=int(row["seq"]),
            )
        )
    return tuple(communicators)


def _slot(file: StateFile, index: int) -> tuple[np.void, np.void | None, Rows]:
    """A slot, its operation in flight, and the ring entries that were left alone meanwhile."""
    at = int(file.header["slots_at"]) + index * layout.SLOT.itemsize
    flight_seq_at = at + layout.offset_of(layout.SLOT, "flight_seq")
    finished_at = at + layout.offset_of(layout.SLOT, "finished")
    slot = file.rows(at, layout.SLOT, 1)[0]
    ring = _steady_ring(slot, file.word(finished_at))
    flight: np.void | None = None
    for _ in range(_TRIES):
        seq = file.word(flight_seq_at)
        if int(slot["flight_seq"]) == seq and seq % 2 == 0:
            flight = slot["flight"]
            break
        slot = file.rows(at, layout.SLOT, 1)[0]
        ring = _steady_ring(slot, file.word(finished_at))
    if flight is not None and not int(flight["start_ns"]):
        flight = None
    return slot, flight, ring


def _steady_ring(slot: np.void, finished_after: int) -> Rows:
    finished = int(slot["finished"])
    length = layout.RING_LENGTH
    # The entry after the newest may be half written at any time, hence the + 1.
    oldest = max(0, finished - length, finished_after - length + 1)
    count = max(0, finished - oldest)
    ring: Rows = slot["ring"][(oldest % length + np.arange(min(count, length))) % length]
    return ring


def _newest_events(file: StateFile) -> list[Any]:
    """Operations of the newest events, without those that are being written or overwritten."""
    begun_at = layout.offset_of(layout.HEADER, "events_begun")
    begun, count = file.word(begun_at), int(file.header["event_count"])
    first = max(0, begun - min(_HISTORY_ROWS, count))
    if begun <= first:
        return []
    rows = file.events(first, begun - first)
    wanted = np.arange(first, begun, dtype=np.uint64) + np.uint64(1)
    safe = max(first, file.word(begun_at) - count)
    whole = (rows["ticket"] == wanted) & (wanted > np.uint64(safe))
    kept: list[Any] = rows[whole][list(layout.OP.names or ())].tolist()
    return kept


def _joined(recent: Sequence[Op], events: Sequence[Op]) -> tuple[Op, ...]:
    """What the rings of the threads hold, with the newest communication of the events."""
    known = {(op.os_thread_id, op.start_ns, op.name) for op in recent}
    more = [op for op in events if op.communicates][-HISTORY:]
    more = [op for op in more if (op.os_thread_id, op.start_ns, op.name) not in known]
    return tuple(sorted([*recent, *more], key=attrgetter("end_ns")))


def _transfers(file: StateFile, communicators: int) -> tuple[TransferCount, ...]:
    header = file.header
    rows = file.rows(int(header["peers_at"]), layout.PEER, int(header["peer_count"]))
    counts = [_transfer(*row) for row in rows[rows["key"] != 0].tolist()]
    ours = [count for count in counts if count.communicator < communicators]
    return tuple(sorted(ours, key=attrgetter("communicator", "receives", "peer", "tag")))


def _transfer(
    key: int, posted: int, done: int, _reserved: int, size_bytes: Sequence[int]
) -> TransferCount:
    rank_at = layout.PEER_TAG_BITS
    communicator_at = rank_at + layout.PEER_RANK_BITS
    kept = range(max(0, posted - layout.PEER_SIZES), posted)
    return TransferCount(
        communicator=key >> communicator_at & ((1 << layout.PEER_COMMUNICATOR_BITS) - 1),
        receives=bool(key >> 62 & 1),
        peer=key >> rank_at & ((1 << layout.PEER_RANK_BITS) - 1),
        tag=key & ((1 << layout.PEER_TAG_BITS) - 1),
        posted=posted,
        done=done,
        sizes=tuple(int(size_bytes[number % layout.PEER_SIZES]) for number in kept),
    )


def _newest(ops: Sequence[Op]) -> tuple[Op, ...]:
    kept: list[Op] = []
    room: dict[tuple[OpKind, int], int] = {}
    for op in sorted(ops, key=lambda op: op.end_ns, reverse=True):
        shelf = (op.kind, op.communicator)
        room[shelf] = room.get(shelf, RECENT_EACH) - 1
        if room[shelf] >= 0:
            kept.append(op)
    return tuple(reversed(kept))


class _Decoder:
    """Turns rows (as tuples of their fields) into Ops; rows that make no sense are left out."""

    def __init__(self, names: Sequence[str], kinds: Sequence[int], communicators: int) -> None:
        self._names = names
        self._kinds = [_KINDS.get(kind) for kind in kinds]
        self._communicators = communicators

    def ops(self, rows: Sequence[tuple[int, ...]]) -> tuple[Op, ...]:
        """By start."""
        ops = [op for op in map(self._op, rows) if op is not None]
        return tuple(sorted(ops, key=attrgetter("start_ns")))

    def _op(self, row: tuple[int, ...]) -> Op | None:
        (start_ns, end_ns, seq, size_bytes, tid, hook, communicator, flags, peer, flops,
         enqueue_ns) = row  # fmt: skip
        kind = self._kinds[hook] if hook < len(self._kinds) else None
        if kind is None:
            return None
        return Op(
            name=self._names[hook],
            kind=kind,
            seq=seq,
            communicator=communicator if 0 <= communicator < self._communicators else -1,
            size_bytes=size_bytes,
            os_thread_id=tid,
            start_ns=start_ns,
            end_ns=end_ns,
            failed=bool(flags & layout.OP_FAILED),
            peer=peer,
            flops=0 if kind is OpKind.P2P else flops,
            tag=flops if kind is OpKind.P2P else 0,
            enqueue_ns=enqueue_ns,
            queued=bool(flags & layout.OP_QUEUED),
            post=flags >> layout.OP_POST_SHIFT,
        )
