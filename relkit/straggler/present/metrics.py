"""Figures drawn from a History: slowdown over the peers, cost, where a slow rank's time goes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relkit.straggler.history_types import History, RaisedVerdict
from relkit.straggler.model import PARTS, Cause, Floats, Subject
from relkit.straggler.score.peers import Peers

_RECENT_STEPS = 50
_RUN_QUEUE_WAIT, _THROTTLED = PARTS.index("run_queue_wait"), PARTS.index("throttled")


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A slow rank's mean step beside the median of its peers' mean steps.

    Args:
        rank: whose; first_step, last_step: over which steps, both included.
        mine_s, peers_s: seconds, one for each of PARTS; NaN = not known.
    """

    rank: int
    first_step: int
    last_step: int
    mine_s: tuple[float, ...]
    peers_s: tuple[float, ...]

    def more_s(self, part: str) -> float:
        """Seconds a step that the rank has more of a part than its peers; NaN = not known."""
        at = PARTS.index(part)
        return self.mine_s[at] - self.peers_s[at]


@dataclass(frozen=True, slots=True, eq=False)
class Metrics:
    """What is drawn of a History, rank by rank.

    Args:
        slowdown: (ranks, steps), local time over the peers' as a share of their usual time (0.1 =
            10 % longer), float32; NaN = not known.
        step_s: mean seconds a step of the job took; NaN = not known.
        unseen: share of ranks and steps of which nothing is known, 0..1.
        breakdowns: of the ranks in `verdicts` and `past`, worst first.
        worst: ranks by recent slowdown and evidence, worst first.
    """

    slowdown: NDArray[np.float32]
    step_s: float
    unseen: float
    breakdowns: tuple[Breakdown, ...]
    worst: tuple[int, ...]


def metrics_of(history: History) -> Metrics:
    """Everything at once; about 0.2 s for 1,024 ranks and 500 steps."""
    slowdown = _slowdown(history)
    known = np.isfinite(history.local_s)
    named = dict.fromkeys(
        raised.verdict.rank
        for raised in history.accusations
        if raised.verdict.subject is Subject.RANK and 0 <= raised.verdict.rank < history.world_size
    )
    made = (breakdown(history, rank) for rank in named)
    return Metrics(
        slowdown=slowdown.astype(np.float32),
        step_s=step_seconds(history),
        unseen=float(1.0 - known.mean()) if known.size else 1.0,
        breakdowns=tuple(parts for parts in made if parts is not None),
        worst=_worst(history, tuple(named)),
    )


def step_seconds(history: History) -> float:
    """Mean time of a step of the job, s, by the clock or the slowest rank; NaN = not known."""
    times = history.step_unix_s
    known = np.flatnonzero(np.isfinite(times))
    if len(known) > 1:
        spent = float(times[known[-1]] - times[known[0]])
        if spent > 0.0:
            return spent / float(known[-1] - known[0])
    own = history.local_s[:, np.isfinite(history.local_s).any(axis=0)]
    return float(np.nanmax(own, axis=0).mean()) if own.size else math.nan


def last_step(history: History) -> int:
    """The newest step of which something is known; the one before the first where there is none."""
    columns = np.flatnonzero(np.isfinite(history.local_s).any(axis=0))
    return history.first_step + (int(columns[-1]) if len(columns) else -1)


def share_lost(history: History, raised: RaisedVerdict) -> float:
    """What a straggler cost, as a share of the job's time since it became slow; NaN = unknown."""
    until = last_step(history) if raised.ended_step < 0 else raised.ended_step
    spent_s = (until - raised.verdict.first_step + 1) * step_seconds(history)
    if not (spent_s > 0.0 and math.isfinite(spent_s)):
        return math.nan
    return min(1.0, max(0.0, raised.verdict.cost_s) / spent_s)


def breakdown(history: History, rank: int) -> Breakdown | None:
    """Where a rank's time goes while it is accused; None where no step of then is kept."""
    said = [
        raised
        for raised in history.accusations
        if raised.verdict.subject is Subject.RANK and raised.verdict.rank == rank
    ]
    if not said:
        return None
    raised = said[0]
    end = last_step(history) if raised.ended_step < 0 else raised.ended_step
    low = max(0, raised.verdict.first_step - history.first_step)
    high = min(history.steps, end - history.first_step + 1)
    if low >= high:
        return None
    window = history.parts[:, :, low:high].astype(np.float64)
    if not np.isfinite(window[0, rank]).any():
        return None
    means = _mean(window)
    # For people each second is in one part.
    means[_RUN_QUEUE_WAIT] = np.maximum(
        means[_RUN_QUEUE_WAIT] - np.nan_to_num(means[_THROTTLED]), 0.0
    )
    peers = np.flatnonzero(history.peers == history.peers[rank])
    peers = peers[peers != rank]
    theirs = _median(means[:, peers])
    return Breakdown(
        rank, history.first_step + low, history.first_step + high - 1,
        tuple(means[:, rank].tolist()), tuple(theirs.tolist()),
    )  # fmt: skip


def main_part(times: Breakdown | None, cause: Cause) -> str:
    """The largest part of a host's slowdown: gc, throttled, or "" for none."""
    if times is None or cause is not Cause.HOST:
        return ""
    most = {part: times.more_s(part) for part in ("gc", "throttled")}
    part = max(most, key=lambda name: most[name] if math.isfinite(most[name]) else -1.0)
    whole = sum(times.mine_s[:3]) - sum(times.peers_s[:3])
    return part if math.isfinite(most[part]) and most[part] > 0.25 * whole > 0.0 else ""


def _slowdown(history: History) -> Floats:
    own = history.local_s.T.astype(np.float64)
    others = Peers(history.peers.tolist()).median_of_others(own)
    # A rank without peers is held against its own past.
    alone = ~np.isfinite(others).any(axis=0)
    others[:, alone] = _median(own[:, alone].T)
    usual = _median(others.T)
    with np.errstate(invalid="ignore", divide="ignore"):
        slowdown: Floats = ((own - others) / usual).T
    slowdown[~np.isfinite(slowdown)] = np.nan
    return slowdown


def _worst(history: History, named: tuple[int, ...]) -> tuple[int, ...]:
    """The accused first, then by evidence, then by slowdown."""
    order = sorted(
        range(history.world_size),
        key=lambda rank: (
            -float(np.nan_to_num(history.evidence[rank])),
            -float(np.nan_to_num(history.scores[rank])),
            rank,
        ),
    )
    return (*named, *(rank for rank in order if rank not in named))


def recent(history: History, values: NDArray[np.float32]) -> Floats:
    """Mean over the last 50 steps, of each rank; NaN = not known."""
    return _mean(values[:, max(0, history.steps - _RECENT_STEPS) :].astype(np.float64))


def _mean(values: Floats) -> Floats:
    """Over the last axis, of what is known."""
    known = np.isfinite(values)
    count = known.sum(axis=-1)
    total = np.where(known, values, 0.0).sum(axis=-1)
    means: Floats = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return means


def _median(values: Floats) -> Floats:
    """Over the last axis, of what is known; without numpy's warning where nothing is."""
    medians = np.full(values.shape[:-1], np.nan)
    known = np.isfinite(values).any(axis=-1)
    if known.any():
        medians[known] = np.nanmedian(np.where(np.isfinite(values), values, np.nan)[known], axis=-1)
    return medians
