"""Where the time of each step of a trace went: at work, waiting for a batch, waiting for others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relkit.straggler.covered import Covered
from relkit.straggler.measured_steps import (
    COLLECTION,
    COMMUNICATION,
    COMPUTE,
    INPUT,
    MEASURED_PARTS,
    REST,
    WALL,
)
from relkit.straggler.model import Floats, Ints
from relkit.straggler.traces.step_marks import Windows
from relkit.straggler.traces.trace_events import EventColumns, Kind, TraceEvents

_US = 1e-6
_LONGEST, _MAX_CELLS = 200, 200_000


@dataclass(frozen=True, slots=True, eq=False)
class StepParts:
    """The steps of one trace.

    Args:
        parts, operations, operation_s, longest: as in RankSteps.
        transfers: what most steps communicate, and how often, sorted.
    """

    parts: Floats
    operations: tuple[tuple[str, int], ...]
    operation_s: Floats
    longest: tuple[tuple[str, float], ...]
    transfers: tuple[tuple[str, int], ...]


def has_kernels(events: TraceEvents) -> bool:
    """A device was traced."""
    return len(events.of(Kind.KERNEL)) > 0


def lacks_kernels(events: TraceEvents) -> bool:
    """A device was used, and not traced: what the host did tells nothing of the work."""
    return (events.uses_device or len(events.of(Kind.LAUNCH)) > 0) and not has_kernels(events)


def step_parts(events: TraceEvents, windows: Windows) -> StepParts:
    """Measure each step.

    Where a device was traced, a step is what was given to the device in it, and counts from the end
    of the step before on the device: the host is ahead. Work is in kernels and copies, whichever
    stream they are in; what only kernels of collectives cover is communication, which is mostly the
    wait for others. Without a device the same holds of the operators of the thread that trains.

    Args:
        events: of one rank; windows: its steps, as the host sees them.
    """
    batches = _spans(events.of(Kind.INPUT))
    if has_kernels(events):
        work, transfers = events.of(Kind.KERNEL), events.of(Kind.DEVICE_TRANSFER)
        kernels = events.of(Kind.KERNEL, Kind.DEVICE_TRANSFER)
        begin, end = _on_device(events, kernels, windows)
        waits = np.concatenate([_spans(transfers), _spans(events.of(Kind.TRANSFER))], axis=1)
        rows, layers = (COMPUTE, COMMUNICATION, INPUT), (_spans(work), waits, batches)
    else:
        threads = frozenset({windows.thread, *events.backward_threads} - {-1})
        work = events.of(Kind.OPERATION, threads=threads or None)
        transfers = events.of(Kind.TRANSFER)
        begin, end = windows.begin_us, windows.end_us
        # What collates a batch is an operator too.
        rows, layers = (INPUT, COMPUTE, COMMUNICATION), (batches, _spans(work), _spans(transfers))
    parts = np.full((MEASURED_PARTS, len(begin)), np.nan)
    parts[WALL] = end - begin
    parts[list(rows)] = _by_layers(layers, begin, end)
    parts[REST] = np.maximum(parts[WALL] - parts[list(rows)].sum(axis=0), 0.0)
    collections = events.of(Kind.COLLECTION)
    if len(collections):
        parts[COLLECTION] = Covered(*_spans(collections)).between(begin, end)
    parts[:, ~(parts[WALL] > 0.0)] = np.nan
    outer = _outermost(work)
    step = _step_of(outer.start, begin, end)
    names = events.names()
    operations: list[tuple[int, int]] = []
    took_us = np.empty((0, len(begin)))
    if not has_kernels(events):
        each_step = _step_of(work.start, begin, end)
        operations, took_us = _by_operation(work, _own_us(work), each_step, len(begin))
    return StepParts(
        parts * _US,
        tuple((names[name], nth) for name, nth in operations),
        took_us * _US,
        _longest(outer, step, names),
        _usual_transfers(events, transfers, begin, end),
    )


def _spans(columns: EventColumns) -> Floats:
    return np.stack([columns.start, columns.end])


def _by_layers(layers: Sequence[Floats], begin: Floats, end: Floats) -> Floats:
    """(layers, steps): what each layer covers that none before it does."""
    covered = [np.zeros(len(begin))]
    for count in range(1, len(layers) + 1):
        both = np.concatenate(layers[:count], axis=1)
        covered.append(Covered(both[0], both[1]).between(begin, end))
    return np.maximum(np.diff(np.stack(covered), axis=0), 0.0)


def _on_device(
    events: TraceEvents, kernels: EventColumns, windows: Windows
) -> tuple[Floats, Floats]:
    """From when to when the device is at each step, us; NaN where it has nothing to do in it."""
    launches = events.of(Kind.LAUNCH)
    order = np.argsort(launches.link, kind="stable")
    links, at = launches.link[order], launches.start[order]
    place = np.minimum(np.searchsorted(links, kernels.link), max(0, len(links) - 1))
    known = np.zeros(len(kernels), dtype=bool)
    if len(links):
        known = (links[place] == kernels.link) & (kernels.link > 0)
    # Without a launch (another way to start it) the host is taken to have waited for it.
    given = np.where(known, at[place] if len(links) else 0.0, kernels.start)
    by_time = np.argsort(windows.begin_us, kind="stable")
    begins, ends = windows.begin_us[by_time], windows.end_us[by_time]
    step = np.searchsorted(begins, given, side="right") - 1
    inside = step >= 0
    inside[inside] &= given[inside] < ends[step[inside]]
    last = np.full(len(begins), -np.inf)
    np.maximum.at(last, step[inside], kernels.end[inside])
    before = kernels.end[given < begins[0]] if len(begins) else kernels.end
    left = np.maximum(begins[:1], before.max(initial=-np.inf))
    earlier = np.maximum.accumulate(np.concatenate([left, last[:-1]]))
    from_us = np.maximum(earlier, begins)
    is_next = np.zeros(len(begins), dtype=bool)
    is_next[1:] = np.isclose(begins[1:], ends[:-1], rtol=0.0, atol=_GAP_US)
    from_us = np.where(is_next, earlier, from_us)
    until_us = np.where(np.isfinite(last), np.maximum.accumulate(last), np.nan)
    back = np.argsort(by_time, kind="stable")
    return from_us[back], until_us[back]


# Between two steps that follow each other the profiler itself has something to do.
_GAP_US = 1e4


def _outermost(columns: EventColumns) -> EventColumns:
    """Those that are in no other one, by begin."""
    if not len(columns):
        return columns
    latest = np.maximum.accumulate(columns.end)
    outer = np.ones(len(columns), dtype=bool)
    outer[1:] = columns.start[1:] >= latest[:-1]
    return columns.at(outer)


def _own_us(columns: EventColumns) -> Floats:
    """Of each operation what no other one within it takes."""
    own: list[float] = (columns.end - columns.start).tolist()
    starts, ends = columns.start.tolist(), columns.end.tolist()
    around: dict[int, list[int]] = {}
    for place, thread in enumerate(columns.thread.tolist()):
        open_ones = around.setdefault(thread, [])
        while open_ones and ends[open_ones[-1]] <= starts[place]:
            open_ones.pop()
        if open_ones:
            own[open_ones[-1]] -= ends[place] - starts[place]
        open_ones.append(place)
    own_us: Floats = np.maximum(np.array(own), 0.0)
    return own_us


def _by_operation(
    work: EventColumns, own_us: Floats, step: Ints, steps: int
) -> tuple[list[tuple[int, int]], Floats]:
    """((name, the how-manieth) of operations, (operations, steps) what each took, us).

    The first of a name in a step is held against the first of that name in the others, and so on.
    """
    inside = step >= 0
    step, name = step[inside], work.name[inside]
    length, start = own_us[inside], work.start[inside]
    order = np.lexsort((start, name, step))
    step, name, length = step[order], name[order], length[order]
    fresh = np.ones(len(step), dtype=bool)
    fresh[1:] = (np.diff(step) != 0) | (np.diff(name) != 0)
    first = np.flatnonzero(fresh)
    nth = np.arange(len(step)) - np.repeat(first, np.diff(np.append(first, len(step))))
    slots, slot = np.unique(np.stack([name, nth]), axis=1, return_inverse=True)
    slot = slot.ravel()
    # Of very many operations those that take the longest.
    most = max(1, _MAX_CELLS // max(1, steps))
    total = np.bincount(slot, weights=length, minlength=slots.shape[1])
    kept = np.sort(np.argsort(-total, kind="stable")[:most])
    row = np.full(slots.shape[1], -1)
    row[kept] = np.arange(len(kept))
    used = row[slot] >= 0
    took = np.full((len(kept), steps), np.nan)
    took[row[slot[used]], step[used]] = length[used]
    return [(int(name), int(nth)) for name, nth in slots[:, kept].T], took


def _longest(
    outer: EventColumns, step: Ints, names: tuple[str, ...]
) -> tuple[tuple[str, float], ...]:
    """What takes most of a step, s."""
    inside = step >= 0
    steps = max(1, len(np.unique(step[inside])))
    took_us = (outer.end - outer.start)[inside]
    total = np.bincount(outer.name[inside], weights=took_us, minlength=1) / steps
    longest = [int(at) for at in np.argsort(-total)[:_LONGEST] if total[at] > 0.0]
    return tuple((names[at], float(total[at]) * _US) for at in longest)


def _usual_transfers(
    events: TraceEvents, transfers: EventColumns, begin: Floats, end: Floats
) -> tuple[tuple[str, int], ...]:
    """What is communicated in most steps; what comes now and then (a log, a save) is left out."""
    step = _step_of(transfers.start, begin, end)
    inside = step >= 0
    steps = int(np.isfinite(end).sum())
    if not inside.any():
        return ()
    kinds, which = np.unique(transfers.name[inside], return_inverse=True)
    counts = np.zeros((len(kinds), len(begin)), dtype=np.int64)
    np.add.at(counts, (which, step[inside]), 1)
    usual = np.median(counts[:, np.isfinite(end)], axis=1) if steps else np.zeros(len(kinds))
    names = events.names()
    # Without args a kernel says only that ranks send; the host has called it by its name.
    told = {names[at].partition("/")[0] for at in np.unique(events.of(Kind.TRANSFER).name)}
    is_to_all = "alltoall" in told and not told & {"send", "recv", "isend", "irecv"}
    pairs = [
        (names[kind].replace("sendrecv", "alltoall" if is_to_all else "sendrecv"), int(times))
        for kind, times in zip(kinds, usual, strict=True)
    ]
    return tuple(sorted(pair for pair in pairs if pair[1] >= 1))


def _step_of(at: Floats, begin: Floats, end: Floats) -> Ints:
    """The place of the step that each time is in; -1 for none."""
    known = np.flatnonzero(np.isfinite(begin) & np.isfinite(end))
    order = known[np.argsort(begin[known], kind="stable")]
    if not len(order):
        return np.full(len(at), -1, dtype=np.int64)
    place = np.searchsorted(begin[order], at, side="right") - 1
    inside = place >= 0
    inside[inside] &= at[inside] < end[order][place[inside]]
    return np.where(inside, order[place], -1).astype(np.int64)
