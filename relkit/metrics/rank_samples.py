"""Samples from the recorders of a node's ranks: steps, collectives, products, what is in flight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from relkit.hook.bus_factor import bus_factor
from relkit.hook.layout import OP_FAILED
from relkit.hook.model import Communicator, HookState, OpKind
from relkit.metrics import table
from relkit.metrics.model import Sample

Floats = npt.NDArray[np.float64]

# A smaller collective measures how long messages take, and no bandwidth.
MIN_BANDWIDTH_BYTES = 64 << 10
# Who is in an operation for less is not worth a series of its own.
_MIN_AGE_S = 1.0


@dataclass(frozen=True, slots=True)
class RankLook:
    """What one rank's recorder says.

    Args:
        rank: its number.
        state: now, with the operations that each thread has finished last.
        events: rows of layout.EVENT, new since the last look; names, kinds: of their hooks.
        communicators: of the rank, by index.
    """

    rank: int
    state: HookState
    events: npt.NDArray[Any]
    names: Sequence[str]
    kinds: Sequence[int]
    communicators: Sequence[Communicator]


def of_ranks(looks: Sequence[RankLook]) -> Iterator[Sample]:
    """All that this node's recorders show.

    Args:
        looks: one a rank that has a recorder.
    """
    if not looks:
        return
    states = [look.state for look in looks]
    yield table.OPERATIONS.of(sum(state.finished for state in states))
    yield table.DROPPED.of(sum(state.dropped + state.uncounted for state in states))
    yield from _in_flight(looks)
    yield from _steps(looks)
    yield from _collectives(looks)
    yield from _products(states)


def _in_flight(looks: Sequence[RankLook]) -> Iterator[Sample]:
    oldest_s: dict[str, float] = {}
    by_rank: list[tuple[float, int, str]] = []
    for look in looks:
        ages = [
            ((look.state.now_ns - op.start_ns) / 1e9, op.name)
            for op in look.state.in_flight
            if op.start_ns <= look.state.now_ns
        ]
        for age_s, name in ages:
            oldest_s[name] = max(age_s, oldest_s.get(name, 0.0))
        if ages and max(ages)[0] >= _MIN_AGE_S:
            by_rank.append((max(ages)[0], look.rank, max(ages)[1]))
    for name in sorted(oldest_s, key=lambda each: -oldest_s[each]):
        yield table.IN_FLIGHT.of(oldest_s[name], name)
    for age_s, rank, name in sorted(by_rank, key=lambda each: (-each[0], each[1])):
        yield table.RANK_IN_FLIGHT.of(age_s, rank, name)


def _steps(looks: Sequence[RankLook]) -> Iterator[Sample]:
    medians_s, rates, waits, collections = [], [], [], []
    for look in looks:
        marks = _of_kind(look, OpKind.MARK)
        steps = _named(look, marks, "step")
        steps = steps[steps["seq"] >= 0]
        numbers, at_s = steps["seq"].astype(np.int64), steps["end_ns"].astype(np.float64) / 1e9
        follows = np.diff(numbers) == 1
        if not follows.any():
            continue
        medians_s.append(float(np.median(np.diff(at_s)[follows])))
        span_s = float(at_s[-1] - at_s[0])
        if span_s > 0.0:
            rates.append(float(follows.sum()) / span_s)
            waits.append(_share(_named(look, marks, "input"), at_s[0], at_s[-1]))
            collections.append(_share(_named(look, marks, "gc"), at_s[0], at_s[-1]))
    if medians_s:
        yield table.STEP_SECONDS.of(float(np.median(medians_s)))
    if rates:
        yield table.STEPS_PER_SECOND.of(float(np.median(rates)))
    for metric, shares in ((table.INPUT_WAIT, waits), (table.GC, collections)):
        # A loop that marks none says nothing of how long it waits.
        if known := [share for share in shares if share is not None]:
            yield metric.of(max(known))


def _share(marks: npt.NDArray[Any], from_s: float, to_s: float) -> float | None:
    """What part of this time such marks cover; None where there are none."""
    if not len(marks):
        return None
    begin_s = np.clip(marks["start_ns"].astype(np.float64) / 1e9, from_s, to_s)
    end_s = np.clip(marks["end_ns"].astype(np.float64) / 1e9, from_s, to_s)
    return min(1.0, float(np.maximum(0.0, end_s - begin_s).sum()) / (to_s - from_s))


def _of_kind(look: RankLook, kind: OpKind) -> npt.NDArray[Any]:
    kinds, hook = np.array(look.kinds, np.int64), look.events["hook"].astype(np.int64)
    is_known = hook < len(kinds)
    events, hook = look.events[is_known], hook[is_known]
    wanted: npt.NDArray[Any] = events[
        (kinds[hook] == kind) & (events["end_ns"] >= events["start_ns"])
    ]
    return wanted


def _named(look: RankLook, events: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    hooks = [number for number, each in enumerate(look.names) if each == name]
    return events[np.isin(events["hook"], hooks)]


@dataclass(frozen=True, slots=True)
class _Runs:
    """Collectives of one communicator and operation on one rank."""

    seq: npt.NDArray[np.int64]
    took_s: Floats
    size_bytes: Floats


def _collectives(looks: Sequence[RankLook]) -> Iterator[Sample]:
    runs: dict[tuple[str, str, int], list[_Runs]] = {}
    for look in looks:
        for key, each in _by_group(look):
            runs.setdefault(key, []).append(each)
    # Those that move most first: they are kept where there are too many.
    joined = {key: _last_to_come(each) for key, each in runs.items()}
    by_bytes = sorted(joined, key=lambda key: (-joined[key].size_bytes.sum(), key))
    for name, operation, ranks in by_bytes[: table.MAX_COMMUNICATORS]:
        each = joined[name, operation, ranks]
        for stat, value in _quantiles(each.took_s):
            yield table.COLLECTIVE_SECONDS.of(value, name, operation, stat)
        large = (each.size_bytes >= MIN_BANDWIDTH_BYTES) & (each.took_s > 0.0)
        factor = bus_factor(operation, ranks)
        if large.any() and factor is not None:
            rate = float(np.median(factor * each.size_bytes[large] / each.took_s[large]))
            yield table.BUS_BANDWIDTH.of(rate, name, operation, ranks)


def _by_group(look: RankLook) -> Iterator[tuple[tuple[str, str, int], _Runs]]:
    events = _of_kind(look, OpKind.COLLECTIVE)
    is_whole = (events["seq"] >= 0) & ((events["flags"] & OP_FAILED) == 0)
    events = events[is_whole & (events["communicator"] >= 0)]
    groups = {group.index: group for group in look.communicators}
    codes = events["communicator"].astype(np.int64) * len(look.kinds) + events["hook"]
    order = np.argsort(codes, kind="stable")
    events, codes = events[order], codes[order]
    borders = np.flatnonzero(np.diff(codes)) + 1
    for rows in np.split(events, borders) if len(events) else ():
        index, hook = int(rows["communicator"][0]), int(rows["hook"][0])
        group = groups.get(index)
        if group is None:
            continue
        yield (
            (group.name or f"of {group.size} ranks", look.names[hook], group.size),
            _Runs(
                rows["seq"].astype(np.int64),
                (rows["end_ns"] - rows["start_ns"]).astype(np.float64) / 1e9,
                rows["size_bytes"].astype(np.float64),
            ),
        )


def _last_to_come(runs: Sequence[_Runs]) -> _Runs:
    """Of each collective, as far as ranks of this node show it, the one that waited least."""
    seq = np.concatenate([each.seq for each in runs])
    took_s = np.concatenate([each.took_s for each in runs])
    size_bytes = np.concatenate([each.size_bytes for each in runs])
    order = np.lexsort((took_s, seq))
    first = np.concatenate(([True], np.diff(seq[order]) != 0)) if len(order) else order
    kept = order[first]
    return _Runs(seq[kept], took_s[kept], size_bytes[kept])


def _products(states: Iterable[HookState]) -> Iterator[Sample]:
    products = [
        ((op.end_ns - op.start_ns) / 1e9, op.flops)
        for state in states
        for op in state.recent
        if op.kind is OpKind.GEMM and op.end_ns > op.start_ns and not op.failed
    ]
    took_s = np.array([each for each, _ in products])
    for stat, value in _quantiles(took_s):
        yield table.MATMUL_SECONDS.of(value, stat)
    rates = [flops / seconds for seconds, flops in products if flops]
    if rates:
        yield table.MATMUL_FLOPS.of(float(np.median(rates)))


def _quantiles(values: Floats) -> Iterator[tuple[str, float]]:
    if len(values):
        for name, quantile in table.QUANTILES.items():
            yield name, float(np.quantile(values, quantile))
