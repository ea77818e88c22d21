"""How long each sort of operation took, gathered rank after rank in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from relkit.errors import BadInputFile
from relkit.hook import layout
from relkit.hook.model import OpKind
from relkit.timeline.calls import Ints, calls_of
from relkit.timeline.model import GC_MARK, INPUT_MARK, STEP_MARK, RankTimeline
from relkit.timeline.shared_operations import Shortest
from relkit.timeline.sources import Source

# Durations are kept to within half of this.
_BIN = 1.01
_LOG_BIN = math.log(_BIN)
_BINS = 4096
# Sorts of operations; of a job that has more the rest is passed over.
_MAX_SORTS = 20_000


class Sort(NamedTuple):
    """What is compared: operations that should take equally long.

    Args:
        phase: "transfer" of a collective, "wait" for its last rank, or "run"; name: of the
            operation; group: "" where it has none; ranks: in it; size_bytes, flops: of each.
    """

    phase: str
    name: str
    group: str = ""
    ranks: int = 0
    size_bytes: int = 0
    flops: int = 0

    def in_words(self) -> str:
        """For people."""
        parts = [self.name]
        if self.group:
            parts.append(f"of {self.ranks} ranks in group {self.group}")
        if self.size_bytes:
            parts.append(f"of {self.size_bytes} bytes")
        if self.flops:
            parts.append(f"({self.flops / 1e9:.3g} GFLOP)")
        before = {"wait": "the wait for others in ", "transfer": "the transfer of "}
        return before.get(self.phase, "") + " ".join(parts)


@dataclass(slots=True)
class Durations:
    """Durations of one sort."""

    bins: Ints = field(default_factory=lambda: np.zeros(_BINS, np.int64))

    def add(self, took_ns: npt.NDArray[np.int64]) -> None:
        """Take some."""
        places = np.log(np.maximum(took_ns, 1).astype(np.float64)) / _LOG_BIN
        self.bins += np.bincount(
            np.minimum(np.rint(places).astype(np.int64), _BINS - 1), minlength=_BINS
        )

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self.bins.sum())

    def at(self, place: float) -> float:
        """The duration of which so many are shorter, ns."""
        reached = np.cumsum(self.bins)
        return float(_BIN ** int(np.searchsorted(reached, max(0.0, place), side="right")))

    @property
    def median_ns(self) -> float:
        """The middle one."""
        return self.at((self.count - 1) / 2)


@dataclass(frozen=True, slots=True, eq=False)
class JobDurations:
    """Of all ranks of a job.

    Args:
        by_sort: durations; steps: that were seen, of all ranks together.
        ranks: that were read; dropped: operations that are not in it.
        left_out: (file, why).
    """

    by_sort: dict[Sort, Durations]
    steps: int
    ranks: int
    dropped: int
    left_out: tuple[tuple[str, str], ...]


def gather_durations(sources: Sequence[Source]) -> JobDurations:
    """Read all ranks of a job, one after the other.

    Raises:
        BadInputFile: none could be used.
    """
    by_sort: dict[Sort, Durations] = {}
    shortest = Shortest()
    collectives: list[Sort] = []
    left_out: list[tuple[str, str]] = []
    steps = ranks = dropped = 0
    for source in sources:
        try:
            timeline = source.timeline()
        except BadInputFile as error:
            left_out.append((source.path.name, str(error)))
            continue
        ranks += 1
        dropped += timeline.lost.dropped
        took = (timeline.steps["end_ns"] - timeline.steps["begin_ns"]).astype(np.int64)
        steps += len(took)
        _add(by_sort, Sort("run", "step"), took)
        for sort, took_ns in _runs(timeline):
            _add(by_sort, sort, took_ns)
        _note_collectives(timeline, shortest, collectives)
    if not ranks:
        raise BadInputFile(f"none of {len(sources)} files could be used: {left_out[0][1]}")
    for number, took_ns in shortest.by_label():
        _add(by_sort, collectives[number]._replace(phase="transfer"), took_ns)
    return JobDurations(by_sort, steps, ranks, dropped, tuple(left_out))


def _add(by_sort: dict[Sort, Durations], sort: Sort, took_ns: Ints) -> None:
    if len(took_ns) and (sort in by_sort or len(by_sort) < _MAX_SORTS):
        by_sort.setdefault(sort, Durations()).add(took_ns)


def _runs(timeline: RankTimeline) -> Iterator[tuple[Sort, Ints]]:
    """What a rank did by itself, by sort."""
    rows, hooks = timeline.rows, timeline.hooks
    over = (rows["end_ns"] >= rows["start_ns"]) & (rows["start_ns"] > 0)
    over &= (rows["hook"] < len(hooks)) & ((rows["flags"] & layout.OP_FAILED) == 0)
    rows = rows[over]
    for number, hook in enumerate(hooks):
        if hook.kind in (OpKind.COLLECTIVE, OpKind.P2P, OpKind.WAIT):
            continue
        is_mark = hook.kind is OpKind.MARK
        if is_mark and hook.name == STEP_MARK:
            continue
        mine = rows[rows["hook"] == number]
        took_ns = (mine["end_ns"] - mine["start_ns"]).astype(np.int64)
        name = {INPUT_MARK: "input wait", GC_MARK: "gc"}.get(hook.name, hook.name)
        # Of a mark they say something else.
        pairs = np.stack([mine["size_bytes"], mine["flops"]], axis=1) * np.uint64(not is_mark)
        kinds, at = np.unique(pairs, axis=0, return_inverse=True)
        for place, (size_bytes, flops) in enumerate(kinds.tolist()[:_MAX_SORTS]):
            sort = Sort("run", name, "", 0, size_bytes, flops)
            yield sort, took_ns[at.ravel() == place]


def _note_collectives(timeline: RankTimeline, shortest: Shortest, collectives: list[Sort]) -> None:
    """How long each took here; the shortest of all ranks is that of the last one to come."""
    calls = calls_of(timeline)
    chosen = np.flatnonzero(calls.is_collective & (calls.key > 0))
    known = {sort: number for number, sort in enumerate(collectives)}
    labels = np.full(len(chosen), -1, np.int64)
    rows = timeline.rows[calls.place[chosen]]
    columns = zip(rows["hook"].tolist(), rows["communicator"].tolist(),
                  rows["size_bytes"].tolist(), strict=True)  # fmt: skip
    for place, (hook, group, size_bytes) in enumerate(columns):
        mine = timeline.groups[group]
        sort = Sort("", timeline.hooks[hook].name, mine.name, mine.size, size_bytes)
        number = known.get(sort)
        if number is None and len(collectives) < _MAX_SORTS:
            number = known[sort] = len(collectives)
            collectives.append(sort)
        labels[place] = -1 if number is None else number
    took_ns = calls.end_ns[chosen] - calls.start_ns[chosen]
    kept = labels >= 0
    shortest.add(calls.key[chosen][kept], calls.size[chosen][kept], labels[kept], took_ns[kept])
