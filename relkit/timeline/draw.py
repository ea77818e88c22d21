"""What one rank did as tracks of slices on the trace's clock (pure)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from relkit.hook import layout
from relkit.hook.bus_factor import bus_factor
from relkit.hook.model import OpKind
from relkit.timeline.calls import Calls
from relkit.timeline.model import (
    FIRST,
    GC_MARK,
    INPUT_MARK,
    LAST,
    NEXT,
    STEP_MARK,
    Hook,
    RankTimeline,
    Rows,
    Slice,
    Track,
    Value,
)

Ints = npt.NDArray[np.int64]

STEPS = "steps"
_DEVICE_WORK, _DEVICE_TRANSFERS = "device: compute", "device: communication"
_MARK_TRACKS = {INPUT_MARK: "input waits", GC_MARK: "garbage collection"}
_CALLS = "python"
_MARK_NAMES = {INPUT_MARK: "input wait", GC_MARK: "gc"}
CATEGORIES = {
    OpKind.COLLECTIVE: "collective",
    OpKind.P2P: "p2p",
    OpKind.GEMM: "gemm",
    OpKind.KERNEL: "kernel",
    OpKind.MEMORY: "memory",
    OpKind.MARK: "mark",
    OpKind.WAIT: "wait",
}
# Of a trace that somebody made up: no screen shows more lines.
_MAX_LANES, MAX_THREADS = 64, 256


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What is known of a rank's calls from the other ranks.

    Args:
        calls: of the rank.
        arrivals: a row of Arrivals for each.
        offset_ns: the rank's clock is ahead of the trace's by.
        error_ns: times of ranks on other clocks are wrong by at most so much; infinite: nothing is
            said of who waited for whom.
    """

    calls: Calls
    arrivals: npt.NDArray[Any]
    offset_ns: int
    error_ns: float


def draw_rank(timeline: RankTimeline, known: Known) -> Iterator[tuple[Track, Iterator[Slice]]]:
    """The tracks of a rank, in the order in which they are shown; slices of a track by start."""
    shift_ns = timeline.identity.unix_offset_ns - known.offset_ns
    number = 0
    if len(timeline.steps):
        yield Track(number, STEPS), _steps(timeline, shift_ns)
        number += 1
    values = _CallValues(timeline, known)
    for name, places in _by_track(timeline):
        for lane, mine in enumerate(_lanes(timeline.rows, places)):
            track = Track(number, name if lane == 0 else f"{name} ({lane + 1})")
            yield track, _slices(timeline, mine, shift_ns, values)
            number += 1


def _steps(timeline: RankTimeline, shift_ns: int) -> Iterator[Slice]:
    order = np.argsort(timeline.steps["begin_ns"], kind="stable")
    end_before = -(1 << 62)
    for number, begin_ns, end_ns, exact in timeline.steps[order].tolist():
        # Steps follow each other; anything else is no step.
        if begin_ns < end_before or end_ns < begin_ns:
            continue
        end_before = end_ns
        values = (("step", number), ("cut_by", "marks" if exact else "pattern"))
        yield Slice(
            f"step {number}", begin_ns + shift_ns, end_ns + shift_ns, values, category="step"
        )


def _by_track(timeline: RankTimeline) -> list[tuple[str, Ints]]:
    """Name of a track -> places of its rows."""
    rows, hooks = timeline.rows, timeline.hooks
    hook = rows["hook"].astype(np.int64)
    sane = (hook < len(hooks)) & ((rows["end_ns"] >= rows["start_ns"]) | (rows["end_ns"] == 0))
    sane &= (rows["start_ns"] > 0) & (rows["start_ns"] < 1 << 62) & (rows["end_ns"] < 1 << 62)
    hook = np.minimum(hook, max(0, len(hooks) - 1))
    kind = np.array([int(each.kind) for each in hooks] or [0])[hook]
    transfers = (kind == OpKind.COLLECTIVE) | (kind == OpKind.P2P)
    device = rows["enqueue_ns"] > 0
    tracks: list[tuple[str, Ints]] = []
    tracks += [(name, np.flatnonzero(sane & of)) for name, of in _by_mark(hooks, hook)]
    of_thread = sane & ~device & (kind != OpKind.MARK)
    tracks += _of_threads(rows["tid"], np.flatnonzero(of_thread), timeline.identity.pid)
    tracks.append((_DEVICE_WORK, np.flatnonzero(sane & device & ~transfers)))
    tracks.append((_DEVICE_TRANSFERS, np.flatnonzero(sane & device & transfers)))
    return [(name, places.astype(np.int64)) for name, places in tracks if len(places)]


def _by_mark(hooks: Sequence[Hook], hook: Ints) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """Name of a track -> which rows are its marks; those of steps have been drawn."""
    track_of = np.array([_mark_track(each) for each in hooks] or [""])[hook]
    for track in (*_MARK_TRACKS.values(), _CALLS):
        yield track, track_of == track


def _mark_track(hook: Hook) -> str:
    if hook.kind is not OpKind.MARK or hook.name == STEP_MARK:
        return ""
    return _MARK_TRACKS.get(hook.name, _CALLS)


def _of_threads(tid: Ints, places: Ints, main: int) -> Iterator[tuple[str, Ints]]:
    """A track for each thread, the main one first; those that did least share one."""
    threads, thread_of, counts = np.unique(tid[places], return_inverse=True, return_counts=True)
    by_count = np.lexsort((threads, -counts, threads != main))
    kept, others = np.sort(by_count[:MAX_THREADS]), by_count[MAX_THREADS:]
    by_thread = np.split(places[np.argsort(thread_of, kind="stable")], np.cumsum(counts)[:-1])
    for number in sorted(kept.tolist(), key=lambda each: (threads[each] != main, each)):
        thread = threads[number]
        yield "main thread" if thread == main else f"thread {thread}", by_thread[number]
    if len(others):
        name = f"other threads ({len(others)})"
        yield name, np.sort(np.concatenate([by_thread[number] for number in others.tolist()]))


def _lanes(rows: Rows, places: Ints) -> list[Ints]:
    """The rows of a track on as many lines as it takes for none to overlap another; by start."""
    start, end = rows["start_ns"][places], rows["end_ns"][places]
    # What is in flight has no end.
    end = np.where(end == 0, np.uint64(1 << 62), end)
    order = np.lexsort((end, start))
    places, start, end = places[order], start[order], end[order]
    if len(places) < 2 or bool((start[1:] >= end[:-1]).all()):
        return [places]
    lanes: list[list[int]] = []
    free: list[tuple[int, int]] = []
    for place, begin, until in zip(places.tolist(), start.tolist(), end.tolist(), strict=True):
        if free and free[0][0] <= begin:
            _, lane = heapq.heappop(free)
        elif len(lanes) < _MAX_LANES:
            lane = len(lanes)
            lanes.append([])
        else:
            continue
        lanes[lane].append(place)
        heapq.heappush(free, (until, lane))
    return [np.array(lane, np.int64) for lane in lanes]


def _slices(
    timeline: RankTimeline, places: Ints, shift_ns: int, values: _CallValues
) -> Iterator[Slice]:
    hooks = timeline.hooks
    rows = timeline.rows[places]
    columns = zip(
        places.tolist(), rows["start_ns"].tolist(), rows["end_ns"].tolist(), rows["hook"].tolist(),
        strict=True,
    )  # fmt: skip
    for place, start_ns, end_ns, number in columns:
        hook = hooks[number]
        category = CATEGORIES[hook.kind]
        if hook.kind is OpKind.MARK:
            unmarked = int(timeline.rows["size_bytes"][place])
            yield Slice(
                _MARK_NAMES.get(hook.name, hook.name), start_ns + shift_ns, end_ns + shift_ns,
                (("calls_left_out_before", unmarked),) if unmarked else (), category=category,
            )  # fmt: skip
            continue
        row = timeline.rows[place].item()
        flow, role = values.flow(place)
        yield Slice(
            hook.name,
            start_ns + shift_ns,
            end_ns + shift_ns if end_ns else None,
            values.of(place, row, hook.name, hook.kind),
            flow,
            role,
            category,
        )


_NAMES = tuple(layout.OP.names or ())
_SEQ, _SIZE, _FLAGS = _NAMES.index("seq"), _NAMES.index("size_bytes"), _NAMES.index("flags")
_GROUP, _PEER, _FLOPS = (
    _NAMES.index("communicator"), _NAMES.index("peer"), _NAMES.index("flops"),
)  # fmt: skip
_START, _END, _ENQUEUED = (
    _NAMES.index("start_ns"), _NAMES.index("end_ns"), _NAMES.index("enqueue_ns"),
)  # fmt: skip


class _CallValues:
    """What is shown with an operation, and what it is tied to."""

    def __init__(self, timeline: RankTimeline, known: Known) -> None:
        self._timeline, self._known = timeline, known
        self._shift_ns = timeline.identity.unix_offset_ns - known.offset_ns
        self._call = {place: at for at, place in enumerate(known.calls.place.tolist())}

    def flow(self, place: int) -> tuple[int, str]:
        """(what ties it to others, which of them it is)."""
        at = self._call.get(place)
        if at is None:
            return 0, ""
        key, met = int(self._known.calls.key[at]), self._known.arrivals[at]
        if not self._known.calls.is_collective[at]:
            receives = int(self._timeline.rows["flags"][place]) & layout.OP_RECEIVES
            return key, LAST if receives else FIRST
        if not int(met["count"]):
            return key, ""
        rank = self._timeline.identity.rank
        if rank == int(met["first_rank"]):
            return key, FIRST
        return key, LAST if rank == int(met["last_rank"]) else NEXT

    def of(
        self, place: int, row: Sequence[int], name: str, kind: OpKind
    ) -> list[tuple[str, Value]]:
        """Names and values."""
        values: list[tuple[str, Value]] = list(self._timeline.details.get(place, {}).items())
        if row[_SIZE]:
            values.append(("bytes", row[_SIZE]))
        if kind in (OpKind.COLLECTIVE, OpKind.P2P):
            values += self._communication(place, row, name, kind)
        elif kind is OpKind.GEMM and row[_FLOPS]:
            values.append(("gflop", row[_FLOPS] / 1e9))
            if (took_ns := row[_END] - row[_START]) > 0:
                values.append(("tflop_s", row[_FLOPS] / took_ns / 1e3))
        if row[_FLAGS] & layout.OP_FAILED:
            values.append(("failed", 1))
        if row[_FLAGS] & layout.OP_QUEUED:
            values.append(("queued", "the device has not begun it"))
        if 0 < row[_ENQUEUED] < row[_START]:
            values.append(("queued_us", (row[_START] - row[_ENQUEUED]) / 1e3))
        return values

    def _communication(
        self, place: int, row: Sequence[int], name: str, kind: OpKind
    ) -> Iterator[tuple[str, Value]]:
        groups = self._timeline.groups
        group = groups[row[_GROUP]] if 0 <= row[_GROUP] < len(groups) else None
        if group is not None:
            yield "group", group.name or f"#{group.index}"
            yield "ranks", group.size
        if row[_SEQ] >= 0:
            yield "seq", row[_SEQ]
        if row[_PEER] >= 0:
            yield ("peer" if kind is OpKind.P2P else "root"), row[_PEER]
        if kind is OpKind.P2P:
            if row[_FLOPS]:
                yield "tag", row[_FLOPS]
            return
        at = self._call.get(place)
        if at is not None and group is not None:
            yield from self._arrival(self._known.arrivals[at], row, name, group.size)

    def _arrival(
        self,
        met: Any,  # noqa: ANN401
        row: Sequence[int],
        name: str,
        ranks: int,
    ) -> Iterator[tuple[str, Value]]:
        error_ns = self._known.error_ns
        if not int(met["count"]) or error_ns == float("inf"):
            return
        last_ns, margin_ns = int(met["last_ns"]), int(met["last_ns"]) - int(met["second_ns"])
        yield "waited_us", max(0, last_ns - row[_START] - self._shift_ns) / 1e3
        # Who came last is said where the clocks can tell.
        if margin_ns > 2 * error_ns:
            yield "last_rank", int(met["last_rank"])
            yield "last_by_us", margin_ns / 1e3
        moved_ns = row[_END] + self._shift_ns - last_ns
        factor = bus_factor(name, ranks)
        if factor and row[_SIZE] and moved_ns > max(1.0, 2 * error_ns):
            yield "bus_gb_s", factor * row[_SIZE] / moved_ns
