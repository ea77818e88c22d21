"""The timelines of all ranks into one trace on one clock, one rank in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from relkit.errors import BadInputFile
from relkit.ranks import RankSet
from relkit.timeline.calls import calls_of
from relkit.timeline.clock_bounds import ClockOffset, clock_offsets
from relkit.timeline.draw import Known, draw_rank
from relkit.timeline.model import HostEvent, Lost, RankTimeline, Slice, Value
from relkit.timeline.shared_operations import Arrivals, HostSightings
from relkit.timeline.sink import RankHead, TraceFacts, TraceSink
from relkit.timeline.sources import Source, Sources


class Clocks(str, Enum):
    """What is done where ranks are on several clocks.

    ALIGN: put on one by what the ranks did together, or refused.
    AS_THEY_ARE: drawn by the hosts' own clocks; nothing is said of who waited for whom.
    """

    ALIGN = "align"
    AS_THEY_ARE = "as-they-are"


class ClocksUnknown(BadInputFile):
    """Clocks of hosts could not be put on one, so ranks cannot be drawn beside each other."""

    next_step = (
        "Record more steps; allow a larger error with --max-clock-error; or take the hosts' own "
        "clocks with --clocks as-they-are: who waited for whom is then not said."
    )


@dataclass(frozen=True, slots=True)
class ClockOf:
    """A clock of the trace.

    Args:
        host: a host that has it; ranks: on it; offset: against the first one.
    """

    host: str
    ranks: RankSet
    offset: ClockOffset


@dataclass(frozen=True, slots=True)
class Merged:
    """What came of a merge.

    Args:
        ranks: that were drawn; missing: of the job, that were not there.
        clocks: the first is the trace's own; empty where they were taken as they are.
        slices: that were drawn; lost: of all ranks together.
        lost_of: ranks of which something is missing.
        left_out: (file, why); cut: (file, why) of those used as far as they go.
        is_sample: who waited for whom is known of some collectives only.
    """

    ranks: RankSet
    missing: RankSet
    clocks: tuple[ClockOf, ...]
    slices: int
    lost: Lost
    lost_of: RankSet
    left_out: tuple[tuple[str, str], ...]
    cut: tuple[tuple[str, str], ...]
    is_sample: bool


@dataclass(slots=True)
class _Seen:
    """What the first pass over all ranks has found."""

    sources: list[Source]
    clock_of: dict[str, int]
    hosts: list[str]
    ranks_on: list[list[int]]
    first_ns: list[int]
    left_out: list[tuple[str, str]]
    cut: list[tuple[str, str]]


Progress = Callable[[int, int], None]


def merge(
    sources: Sources,
    sink: TraceSink,
    clocks: Clocks,
    max_error_ns: float,
    progress: Progress = lambda _done, _total: None,
) -> Merged:
    """Write a trace.

    Args:
        sources: of one job; sink: where it goes.
        clocks: what is done where there are several; max_error_ns: how wrong one may be at most.
        progress: (files read so far, in all).

    Raises:
        BadInputFile: no file could be used.
        ClocksUnknown: clocks are to be aligned, and cannot be.
    """
    total = 3 * len(sources.ranks)
    sightings = HostSightings()
    seen = _first_pass(sources, sightings, lambda done: progress(done, total))
    several = len(seen.hosts) > 1
    offsets = [ClockOffset(0, 0.0, 0)] * len(seen.hosts)
    if several and clocks is Clocks.ALIGN:
        offsets = list(clock_offsets(len(seen.hosts), sightings.operations(), max_error_ns))
        _refuse_unknown(seen, offsets)
    error_ns = max(each.error_ns for each in offsets)
    # Two clocks, each of which is wrong by so much.
    between_ns = 0.0 if not several else 2 * error_ns
    if several and clocks is Clocks.AS_THEY_ARE:
        between_ns = float("inf")
    arrivals = Arrivals()
    done = len(sources.ranks)
    origin_ns = min(
        first - offset.offset_ns for first, offset in zip(seen.first_ns, offsets, strict=True)
    )
    lost, lost_of = Lost(), []
    for source in seen.sources:
        timeline = source.timeline()
        offset = offsets[seen.clock_of[timeline.identity.clock]].offset_ns
        arrivals.add(timeline.identity.rank, calls_of(timeline), offset)
        lost = _sum(lost, timeline.lost)
        if timeline.lost.dropped:
            lost_of.append(source.rank)
        done += 1
        progress(done, total)
    arrivals.finish()
    merged = Merged(
        RankSet.of(source.rank for source in seen.sources),
        RankSet.world(sources.world_size) - RankSet.of(source.rank for source in seen.sources),
        tuple(
            ClockOf(host, RankSet.of(ranks), offset)
            for host, ranks, offset in zip(seen.hosts, seen.ranks_on, offsets, strict=True)
        ),
        0,
        lost,
        RankSet.of(lost_of),
        (*sources.left_out, *seen.left_out),
        tuple(seen.cut),
        arrivals.is_sample,
    )
    sink.begin(TraceFacts(origin_ns, _facts(merged, clocks, several, error_ns)))
    sink.host_events(_on_one_clock(sources.events, seen, offsets, origin_ns))
    slices = 0
    for source in seen.sources:
        slices += _draw(source, seen, offsets, arrivals, between_ns, sink)
        done += 1
        progress(done, total)
    sink.end()
    return replace(merged, slices=slices)


def _first_pass(
    sources: Sources, sightings: HostSightings, progress: Callable[[int], None]
) -> _Seen:
    seen = _Seen([], {}, [], [], [], [], [])
    for done, source in enumerate(sources.ranks, 1):
        progress(done)
        try:
            timeline = source.timeline()
        except BadInputFile as error:
            seen.left_out.append((source.path.name, str(error)))
            continue
        times = timeline.rows["start_ns"]
        if not len(times) and not len(timeline.steps):
            seen.left_out.append((source.path.name, "it holds no operation"))
            continue
        if timeline.cut:
            seen.cut.append((source.path.name, timeline.cut))
        identity = timeline.identity
        clock = seen.clock_of.setdefault(identity.clock, len(seen.clock_of))
        if clock == len(seen.hosts):
            seen.hosts.append(identity.host or identity.clock)
            seen.ranks_on.append([])
            seen.first_ns.append(1 << 62)
        starts = [int(times.min())] if len(times) else []
        starts += [int(timeline.steps["begin_ns"].min())] if len(timeline.steps) else []
        first_ns = min(starts) + identity.unix_offset_ns
        seen.first_ns[clock] = min(seen.first_ns[clock], first_ns)
        seen.ranks_on[clock].append(source.rank)
        seen.sources.append(source)
        sightings.add(clock, calls_of(timeline))
    if not seen.sources:
        first = seen.left_out[0] if seen.left_out else ("", "there is none")
        raise BadInputFile(f"none of {len(sources.ranks)} files could be used: {first[1]}")
    return seen


def _refuse_unknown(seen: _Seen, offsets: Iterable[ClockOffset]) -> None:
    unknown = [
        (host, offset) for host, offset in zip(seen.hosts, offsets, strict=True) if offset.problem
    ]
    if unknown:
        host, offset = unknown[0]
        more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        raise ClocksUnknown(
            f"the clock of {host}{more} cannot be put beside that of {seen.hosts[0]}: "
            f"{offset.problem}"
        )


def _draw(
    source: Source,
    seen: _Seen,
    offsets: list[ClockOffset],
    arrivals: Arrivals,
    between_ns: float,
    sink: TraceSink,
) -> int:
    timeline = source.timeline()
    identity = timeline.identity
    offset = offsets[seen.clock_of[identity.clock]]
    calls = calls_of(timeline)
    known = Known(calls, arrivals.of(calls), offset.offset_ns, between_ns)
    name = f"rank {identity.rank}" + (f" on {identity.host}" if identity.host else "")
    sink.rank(RankHead(identity.rank, name, _rank_facts(timeline, offset)))
    slices = 0
    for track, drawn in draw_rank(timeline, known):
        counted = _Counted(drawn)
        sink.track(track, counted)
        slices += counted.count
    return slices


class _Counted:
    """Counts the slices that go by."""

    def __init__(self, inner: Iterable[Slice]) -> None:
        self._inner, self.count = inner, 0

    def __iter__(self) -> Iterator[Slice]:
        for each in self._inner:
            self.count += 1
            yield each


def _sum(first: Lost, other: Lost) -> Lost:
    return Lost(
        first.events + other.events,
        first.work + other.work,
        first.unrecorded + other.unrecorded,
        first.small + other.small,
    )


def _rank_facts(timeline: RankTimeline, offset: ClockOffset) -> dict[str, Value]:
    lost = timeline.lost
    return {
        "rank": timeline.identity.rank,
        "host": timeline.identity.host,
        "pid": timeline.identity.pid,
        "dropped_events": lost.events,
        "dropped_work": lost.work,
        "unrecorded": lost.unrecorded,
        "small_products_not_timed": lost.small,
        "clock_offset_us": offset.offset_ns / 1e3,
        "clock_error_us": offset.error_ns / 1e3,
        "cut": timeline.cut or "no",
    }


def _facts(merged: Merged, clocks: Clocks, several: bool, error_ns: float) -> dict[str, Value]:
    facts: dict[str, Value] = {
        "ranks": merged.ranks.fold(),
        "missing_ranks": merged.missing.fold() or "none",
        "dropped": merged.lost.dropped,
    }
    if not several:
        facts["clocks"] = "one"
    elif clocks is Clocks.AS_THEY_ARE:
        facts["clocks"] = "as the hosts have them: who waited for whom cannot be told"
    else:
        facts["clocks"] = "aligned by what ranks did together"
        facts["clock_error_us"] = error_ns / 1e3
    return facts


def _on_one_clock(
    events: Iterable[HostEvent], seen: _Seen, offsets: list[ClockOffset], origin_ns: int
) -> list[HostEvent]:
    """Those of launchers whose ranks are in the trace, from its begin on."""
    moved = []
    for event in events:
        clock = seen.clock_of.get(event.clock)
        if clock is None:
            continue
        ahead_ns = offsets[clock].offset_ns
        begin_ns, end_ns = event.begin_ns - ahead_ns, event.end_ns - ahead_ns
        if end_ns >= origin_ns:
            begin_ns = max(begin_ns, origin_ns)
            moved.append(replace(event, begin_ns=begin_ns, end_ns=end_ns))
    return sorted(moved, key=lambda event: event.begin_ns)
