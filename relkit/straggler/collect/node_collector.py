"""Collects the finished steps of a node's ranks from their recorders, while the job runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from relkit.errors import BadDump
from relkit.hook.events import EventBatch, EventReader
from relkit.hook.layout import EVENT_COUNT
from relkit.hook.model import Communicator, OpKind
from relkit.hook.reader import state_files
from relkit.process import procfs
from relkit.process.identity import ProcessFinder, ProcessIdentity
from relkit.straggler.collect.cgroup import throttled_s
from relkit.straggler.collect.event_rows import GC_MARK, HookMeaning, Rows, event_rows
from relkit.straggler.collect.excuses import Excuses
from relkit.straggler.collect.host_loads import HostLoadMeter
from relkit.straggler.collect.local_time import local_times
from relkit.straggler.collect.placement import Placement, placement, unlike
from relkit.straggler.collect.run_times import RunTimes
from relkit.straggler.collect.step_segmenter import SegmentedSteps, StepSegmenter
from relkit.straggler.host_load import HostLoad
from relkit.straggler.model import (
    EXCUSED,
    LOCAL_PARTS,
    RUN_QUEUE_WAIT,
    THROTTLED,
    Floats,
    PartTimes,
)
from relkit.straggler.step_record import COLLECTIVE, RankProcess, StepRecord

# A rank whose recorder is not there yet is looked for this often: it starts with its first
# collective.
_LOOK_AGAIN_S = 0.5
# Throttling and placement change slowly, and cost some file reads a rank.
_HOST_EVERY_S = 0.5
_PLACE_EVERY_S = 10.0
# Operations without a step after which that is noted.
_NO_STEP_AFTER = 200


class EventSource(Protocol):
    """What is needed of an EventReader."""

    names: tuple[str, ...]
    kinds: tuple[int, ...]
    pid: int
    rank: int
    identity: ProcessIdentity
    boot_to_unix_ns: int

    def drain(self) -> EventBatch:
        """What is new since the last call."""
        ...

    def communicators(self) -> tuple[Communicator, ...]:
        """The process groups that are known by now."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


class RunTimeSource(Protocol):
    """What is needed of RunTimes."""

    def watch(self, pids: tuple[int, ...]) -> None:
        """Look at the main threads of these processes, and at no others."""
        ...

    def set_step(self, step_s: float) -> None:
        """Steps take about so long."""
        ...

    def fill(self, pid: int, rows: Rows) -> None:
        """Set run_ns and wait_ns of operations that have just been read."""
        ...

    def close(self) -> None:
        """Let go of all files."""
        ...


@dataclass(slots=True)
class _KernelView:
    """How the kernel treats a rank, read now and then."""

    throttled_at: float = 0.0
    throttled_s: float | None = None
    throttled_share: float = float("nan")
    placement: Placement | None = None
    placed_at: float = -_PLACE_EVERY_S
    excuses: Excuses = field(default_factory=Excuses)

    def look(self, pid: int, now_s: float) -> None:
        """How much of the time since the last look the rank was throttled; where it may run."""
        self.excuses.look(pid, now_s)
        if now_s - self.placed_at >= _PLACE_EVERY_S:
            self.placement, self.placed_at = placement(pid), now_s
        if now_s - self.throttled_at >= _HOST_EVERY_S:
            total = throttled_s(pid)
            if total is not None and self.throttled_s is not None:
                share = (total - self.throttled_s) / (now_s - self.throttled_at)
                self.throttled_share = min(1.0, max(0.0, share))
            self.throttled_s, self.throttled_at = total, now_s


@dataclass(slots=True)
class _Rank:
    """What is known of one rank.

    Args:
        pid: that the launcher has started; number: of the process that records, as it is here.
    """

    pid: int
    number: int
    reader: EventSource
    meaning: HookMeaning
    segmenter: StepSegmenter = field(default_factory=StepSegmenter)
    gc_reported: bool = False
    groups: tuple[Communicator, ...] = ()
    seen: int = 0
    lost: int = 0
    stepped: bool = False
    kernel: _KernelView = field(default_factory=_KernelView)


class NodeCollector:
    """A StepSource over the recorder files of one node; call collect() as `fill` asks for.

    A recorder holds the newest 4,096 operations of a rank: what is not collected in time is lost,
    and noted.

    Args:
        job_dir: folder of the recorder files; host: name to report.
        clock: monotonic seconds; open_events: opens a recorder file; run_times: knows when main
            threads ran.
    """

    def __init__(
        self,
        job_dir: Path,
        host: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        open_events: Callable[[Path], EventSource] = EventReader,
        run_times: RunTimeSource | None = None,
    ) -> None:
        self._job_dir, self._host, self._clock = job_dir, host, clock
        self._open_events, self._finder = open_events, ProcessFinder(clock)
        self._run_times = RunTimes() if run_times is None else run_times
        self._ranks: dict[int, _Rank] = {}
        self._missing: dict[int, float] = {}
        # Share of a recorder's ring that the last collect() found new; above 1 some was lost.
        self.fill = 0.0
        self._broken: dict[int, str] = {}
        self._load_meter = HostLoadMeter()

    @property
    def load(self) -> HostLoad | None:
        """Who has the cores of this node; None where that is not known yet."""
        return self._load_meter.load

    def collect(self, ranks: Sequence[RankProcess]) -> tuple[StepRecord, ...]:
        """Steps of these ranks that have finished since the last call, by rank and step."""
        wanted = {local.rank for local in ranks}
        for rank in self._ranks.keys() - wanted:
            self._drop(rank)
        for rank in self._missing.keys() - wanted:
            del self._missing[rank]
        now_s, self.fill = self._clock(), 0.0
        present = [(local.rank, self._known(local, now_s)) for local in ranks]
        present.sort(key=lambda entry: entry[0])
        # Also those that have not begun: their first steps are to be known as the later ones are.
        pids = [local.pid for local in ranks if local.rank not in self._ranks]
        pids += [known.number for known in self._ranks.values()]
        self._run_times.watch(tuple(pids))
        self._load_meter.look(pids, now_s)
        records: list[StepRecord] = []
        for rank, known in present:
            if known is None:
                continue
            try:
                records += self._steps(rank, known, now_s)
            except BadDump as error:
                self._drop(rank)
                self._broken[rank] = str(error)
        if records:
            self._run_times.set_step(
                min(record.end_ns - record.begin_ns for record in records[-8:]) / 1e9
            )
        return tuple(records)

    def notes(self) -> tuple[str, ...]:
        """What was not seen so far, one sentence each."""
        notes = [f"rank {rank}: no recorder seen; is the hook loaded?" for rank in self._missing]
        notes += [f"rank {rank}: {text}" for rank, text in sorted(self._broken.items())]
        for rank, known in sorted(self._ranks.items()):
            if known.lost:
                notes.append(
                    f"rank {rank}: {known.lost} operations were lost before they were read"
                )
            if not known.stepped and known.seen >= _NO_STEP_AFTER:
                notes.append(
                    f"rank {rank}: nothing in {known.seen} operations repeats like the steps of a "
                    "loop; call relkit.step() at the start of each"
                )
            if known.segmenter.changes:
                times = known.segmenter.changes
                notes.append(f"rank {rank}: took up another pattern of steps ({times} times)")
        places = {
            rank: known.kernel.placement
            for rank, known in self._ranks.items()
            if known.kernel.placement is not None
        }
        return (*notes, *unlike(places))

    def close(self) -> None:
        """Let go of all recorder files."""
        for rank in list(self._ranks):
            self._drop(rank)
        self._run_times.close()

    def _drop(self, rank: int) -> None:
        known = self._ranks.pop(rank, None)
        if known is not None:
            known.reader.close()

    def _known(self, local: RankProcess, now_s: float) -> _Rank | None:
        known = self._ranks.get(local.rank)
        if known is not None and known.pid == local.pid:
            return known
        if known is not None:
            self._drop(local.rank)
        if now_s < self._missing.get(local.rank, now_s):
            return None
        opened = self._open(local)
        if opened is None:
            self._missing[local.rank] = now_s + _LOOK_AGAIN_S
            return None
        self._missing.pop(local.rank, None)
        self._broken.pop(local.rank, None)
        reader, number = opened
        known = _Rank(local.pid, number, reader, HookMeaning.of(reader.names, reader.kinds))
        self._ranks[local.rank] = known
        return known

    def _open(self, local: RankProcess) -> tuple[EventSource, int] | None:
        """The recorder of the process, or of the child of it (a wrapper) that has the rank.

        Returns:
            with the number of its process; None also for one that cannot be told from others.
        """
        own = self._job_dir / f"{local.pid}.rkhook"
        for path in [own] if own.exists() else state_files(self._job_dir):
            try:
                reader = self._open_events(path)
            except BadDump:
                continue
            if path == own:
                return reader, local.pid
            if reader.rank == local.rank and reader.communicators():
                number = self._finder.number_of(reader.identity)
                if number and procfs.is_same_process(number, reader.identity.start_ticks):
                    return reader, number
            reader.close()
        return None

    def _steps(self, rank: int, known: _Rank, now_s: float) -> list[StepRecord]:
        known.kernel.look(known.number, now_s)
        batch = known.reader.drain()
        if known.seen:
            self.fill = max(self.fill, (len(batch.rows) + batch.lost) / EVENT_COUNT)
        if not len(batch.rows) and not batch.lost:
            return []
        newest = int(batch.rows["communicator"].max(initial=-1))
        # Until steps are known it matters which groups there are, used or not.
        if not known.stepped or newest >= len(known.groups):
            known.groups = known.reader.communicators()
        rows = event_rows(batch.rows, known.meaning, known.groups, known.reader.pid)
        self._run_times.fill(known.number, rows)
        before = 0
        if not known.seen:
            before, batch_lost = _sent_before(batch.rows, rows), 0
        else:
            batch_lost = batch.lost
        known.lost += batch.lost
        known.seen += len(rows)
        known.gc_reported |= bool((rows["mark"] == GC_MARK).any())
        steps = known.segmenter.feed(rows, known.groups, before=before, lost=batch_lost)
        if steps is None or not len(steps.numbers):
            return []
        known.stepped = True
        return self._records(rank, known, steps)

    def _records(self, rank: int, known: _Rank, steps: SegmentedSteps) -> list[StepRecord]:
        parts = local_times(steps.rows, steps.begins, steps.ends, gc_reported=known.gc_reported)
        offset = known.reader.boot_to_unix_ns
        begins, ends = steps.begins["end_ns"], steps.ends["end_ns"]
        length_s = (ends - begins) / 1e9
        parts[THROTTLED] = _throttled(known.kernel.throttled_share * length_s, parts)
        parts[EXCUSED] = known.kernel.excuses.excused_s(length_s, parts)
        rows = steps.rows
        rows = rows[(rows["kind"] == OpKind.COLLECTIVE) & (rows["communicator"] >= 0)]
        first = np.searchsorted(rows["end_ns"], begins, side="right")
        last = np.searchsorted(rows["end_ns"], ends, side="right")
        collectives = np.empty(len(rows), COLLECTIVE)
        for name in ("communicator", "operation", "seq", "size_bytes"):
            collectives[name] = rows[name]
        collectives["start_ns"] = rows["start_ns"] + offset
        collectives["end_ns"] = rows["end_ns"] + offset
        groups = tuple((group.name, group.size, group.rank) for group in known.groups)
        return [
            StepRecord(
                rank, self._host, steps.peers_key, number, steps.exact, begin_ns, end_ns,
                PartTimes._make(times), collectives[a:b], groups,
            )
            for number, begin_ns, end_ns, times, a, b in zip(
                steps.numbers.tolist(), (begins + offset).tolist(), (ends + offset).tolist(),
                parts.T.tolist(), first.tolist(), last.tolist(), strict=True,
            )
        ]  # fmt: skip


def _sent_before(events: Rows, rows: Rows) -> int:
    """Sends and receives of which the first look came too late: the ring had them, once."""
    if not len(events) or not len(rows):
        return 0
    unseen = int(events["ticket"][0]) - 1
    collectives = rows[(rows["kind"] == OpKind.COLLECTIVE) & (rows["seq"] >= 0)]
    for number in np.unique(collectives["communicator"]):
        unseen -= int(collectives["seq"][collectives["communicator"] == number].min())
    return max(0, unseen)


def _throttled(even_s: Floats, parts: Floats) -> Floats:
    """Which steps the cgroup stopped the rank in, of a total that was read for all of them.

    A stopped thread waits for a core, as the kernel counts: so the steps that waited longest were
    stopped, one after the other until the total is used up. Stops while the rank itself waited for
    others cost it nothing, and are in no step.

    Args:
        even_s: the total, divided evenly; NaN = not known.
        parts: (len(PARTS), steps), s.
    """
    local_s, wait_s = parts[:LOCAL_PARTS].sum(axis=0), parts[RUN_QUEUE_WAIT]
    if not np.isfinite(wait_s).all() or not np.isfinite(even_s).all():
        spread_s: Floats = np.minimum(even_s, local_s)
        return spread_s
    max_s = np.minimum(wait_s, local_s)
    longest = np.argsort(-max_s, kind="stable")
    left_s = float(even_s.sum()) - (np.cumsum(max_s[longest]) - max_s[longest])
    throttled_s = np.zeros(len(max_s))
    throttled_s[longest] = np.clip(left_s, 0.0, max_s[longest])
    return throttled_s
