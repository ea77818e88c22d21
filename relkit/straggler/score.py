"""Scores every rank after every step, and says which ones are stragglers, since when and why."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from relkit.straggler.causes import attribute
from relkit.straggler.model import PARTS, Flags, Floats, StepTable, Subject, Verdict
from relkit.straggler.noise import NoiseLevel
from relkit.straggler.peers import Peers
from relkit.straggler.sequential import BurstTest, ShiftTest

# Compute, input and the whole: a part with little noise of its own shows a fault sooner.
_CHANNELS = 3
_TOTAL = 2
_OWN = 3
_WARM_UP = 8
_PAST_RATE = 1.0 / 16.0
_RECENT_RATE = 1.0 / 8.0
_BURST = 0.2
_BURST_SIGMAS = 6.0
_LATE_SHARE = 0.25
_CALM_STEPS = 8
_MOST_EXCESS = 1.0
_CENTRE_RATE = 1.0 / 64.0
_HARDLY = 1.0
_FADES = 1.0 / 64.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What counts as slow, and how sure it must be.

    Args:
        least_slowdown: share of the step's own time, 0..1; less is never raised.
        shifts: slownesses that are tested for, ascending.
        false_alarm: chance that a healthy job of `horizon_steps` is accused, 0..1.
    """

    least_slowdown: float = 0.04
    shifts: tuple[float, ...] = (0.05, 0.10, 0.20)
    false_alarm: float = 0.01
    horizon_steps: int = 10_000

    def limit(self, ranks: int) -> float:
        """Nats at which a rank is accused, of so many ranks."""
        tests = max(1, ranks) * _CHANNELS * len(self.shifts) * self.horizon_steps
        # A CUSUM comes this close to its limit about once in exp(limit) steps; successive ones
        # are far from independent, which is why the horizon is counted by its square root.
        return float(np.log(tests / np.sqrt(self.horizon_steps) / self.false_alarm))


class RankScorer:
    """Call update() after each step; it says who is a straggler now.

    A rank is held against the median of its peers without itself, by the time that it takes
    itself: waiting for others is not in that time, so that a victim never looks slow. A rank
    without peers is held against its own past. It is accused when the evidence suffices, the
    slowness is worth it, and it is really late in its collectives where arrivals are known.

    Args:
        positions: one key a rank (Position.peers); ranks with equal keys do equal work.
        settings: what counts as slow.
    """

    def __init__(self, positions: Sequence[Hashable], settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        ranks = len(positions)
        self._peers = Peers(positions)
        self._noise = NoiseLevel(_CHANNELS, ranks)
        self._limit = self._settings.limit(ranks)
        self._shift = ShiftTest(self._settings.shifts, (_CHANNELS, ranks), self._limit)
        self._burst = BurstTest(ranks, self._limit)
        self._past = np.full((len(PARTS), ranks), np.nan)
        self._usual_excess = np.full(ranks, np.nan)
        self._recent = np.zeros(ranks)
        self._calm = np.zeros(ranks, dtype=np.int64)
        self._raised: Flags = np.zeros(ranks, dtype=bool)
        self._first_step = np.full(ranks, -1, dtype=np.int64)
        self._scale_s = np.full(ranks, np.nan)
        self._mean_excess = np.zeros((_CHANNELS, ranks))
        self._steps = 0
        self._since = np.zeros(ranks)
        self._mine = np.zeros((len(PARTS), ranks))
        self._theirs = np.zeros((len(PARTS), ranks))
        self._late = np.zeros(ranks)
        self._late_known = np.zeros(ranks)

    @property
    def evidence(self) -> Floats:
        """Of each rank the nats against it, as a share of what an accusation takes."""
        nats = np.maximum(self._shift.best()[0].max(axis=0), self._burst.nats)
        share: Floats = nats / self._limit
        return share

    @property
    def recent_excess(self) -> Floats:
        """Of each rank how much longer than its peers it took in the last steps, as a share."""
        return self._recent.copy()

    def update(self, table: StepTable) -> tuple[Verdict, ...]:
        """Take one step, and say who is a straggler after it, worst first."""
        reference = self._reference(table.parts)
        usual = reference[:_OWN].sum(axis=0)
        own = table.parts[:_OWN].sum(axis=0)
        # A quotient of two noisy times is above 1 on average: the divisor must be a steady one.
        scale = self._steady(usual)
        part = table.parts - reference
        excess = np.stack([part[0], part[1], own - usual])
        excess = excess / scale
        self._noise.update(excess)
        sigma = self._noise.sigma()
        excess = excess - self._centre(excess)
        total = excess[_TOTAL]
        known = np.isfinite(total)
        self._shift.update(table.step, np.clip(excess, -_MOST_EXCESS, _MOST_EXCESS), sigma)
        burst = max(_BURST, _BURST_SIGMAS * float(self._noise.spread()[_TOTAL]))
        hit = known & (np.nan_to_num(total) > burst)
        self._burst.update(table.step, hit, known)
        self._steps += 1
        self._add_up(table, reference, known)
        self._recent += np.where(known, _RECENT_RATE * (np.nan_to_num(total) - self._recent), 0.0)
        self._decide()
        self._learn_past(table.parts, total)
        found = [self._verdict(int(rank)) for rank in np.flatnonzero(self._raised)]
        return tuple(sorted(found, key=lambda verdict: (-verdict.cost_s, verdict.rank)))

    def _steady(self, usual_s: Floats) -> Floats:
        rate = max(_PAST_RATE, 1.0 / (self._steps + 1))
        known = np.isfinite(usual_s) & (usual_s > 0.0)
        fresh = known & ~np.isfinite(self._scale_s)
        self._scale_s[fresh] = usual_s[fresh]
        self._scale_s[known] += rate * (usual_s[known] - self._scale_s[known])
        return self._scale_s

    def _centre(self, excess: Floats) -> Floats:
        """What a healthy rank exceeds its peers by on average; not 0 where noise is lopsided."""
        bounded = np.clip(excess, -_MOST_EXCESS, _MOST_EXCESS)
        rate = max(_CENTRE_RATE, 1.0 / (self._steps + 1))
        known = np.isfinite(bounded)
        self._mean_excess[known] += rate * (bounded[known] - self._mean_excess[known])
        centre: Floats = np.median(self._mean_excess, axis=1, keepdims=True)
        return np.maximum(centre, 0.0)

    def _reference(self, parts: Floats) -> Floats:
        found = self._peers.median_of_others(parts)
        if self._peers.alone.any():
            enough = self._peers.alone & (self._steps >= _WARM_UP)
            found[:, enough] = self._past[:, enough]
        return found

    def _add_up(self, table: StepTable, reference: Floats, known: Flags) -> None:
        """What was seen since the present suspicion began; forgotten where there is none."""
        nats = np.maximum(self._shift.nats.max(axis=(0, 1)), self._burst.nats)
        clean = (nats < _HARDLY) & ~self._raised
        # What was seen long before the accusation would only dilute it.
        kept = np.where(clean, 0.0, np.where(self._raised, 1.0, 1.0 - _FADES))
        for sums in (self._mine, self._theirs):
            sums *= kept
        for count in (self._since, self._late, self._late_known):
            count *= kept
        adds = known & ~clean
        self._since += adds
        self._mine += np.where(adds, np.nan_to_num(table.parts), 0.0)
        self._theirs += np.where(adds, np.nan_to_num(reference), 0.0)
        late = adds & np.isfinite(table.late_s)
        self._late += np.where(late, np.nan_to_num(table.late_s), 0.0)
        self._late_known += late

    def _decide(self) -> None:
        nats, onset = self._shift.best()
        channel = np.argmax(nats, axis=0)[None]
        shift = np.take_along_axis(nats, channel, axis=0)[0]
        shift_onset = np.take_along_axis(onset, channel, axis=0)[0]
        by_shift = shift >= self._burst.nats
        evidence = np.where(by_shift, shift, self._burst.nats)
        excess_s, usual_s = self._excess()
        material = excess_s >= self._settings.least_slowdown * usual_s
        late = (self._late_known == 0) | (self._late >= _LATE_SHARE * excess_s)
        fresh = ~self._raised & (evidence >= self._limit) & material & late
        self._first_step[fresh] = np.where(by_shift, shift_onset, self._burst.onset)[fresh]
        self._raised |= fresh
        quiet = self._recent < 0.5 * self._settings.least_slowdown
        self._calm = np.where(self._raised & quiet, self._calm + 1, 0)
        # One rule lets go of what has plainly ended, the other of what was doubtful all along.
        over = (self._calm >= _CALM_STEPS) & (self._burst.nats < self._limit)
        over |= evidence < 0.25 * self._limit
        self._raised &= ~over

    def _excess(self) -> tuple[Floats, Floats]:
        mine, usual = self._mine[:_OWN].sum(axis=0), self._theirs[:_OWN].sum(axis=0)
        return mine - usual, usual

    def _learn_past(self, parts: Floats, total: Floats) -> None:
        innocent = ~self._raised & (self.evidence < 0.5)
        rate = max(_PAST_RATE, 1.0 / self._steps)
        with_past = np.isfinite(self._past)
        moved = np.where(with_past, self._past + rate * (parts - self._past), parts)
        self._past = np.where(innocent & np.isfinite(moved), moved, self._past)
        usual = np.where(np.isfinite(self._usual_excess), self._usual_excess, total)
        usual = usual + rate * (np.clip(total, -_MOST_EXCESS, _MOST_EXCESS) - usual)
        self._usual_excess = np.where(innocent & np.isfinite(usual), usual, self._usual_excess)

    def _verdict(self, rank: int) -> Verdict:
        steps = max(float(self._since[rank]), 1.0)
        all_excess, all_usual = self._excess()
        excess_s, usual_s = float(all_excess[rank]), float(all_usual[rank])
        why = attribute(self._mine[:, rank] / steps, self._theirs[:, rank] / steps)
        score = excess_s / usual_s if usual_s > 0.0 else 0.0
        alone = bool(self._peers.alone[rank])
        against = "its own past (it has no peers)" if alone else "the median of its peers"
        reasons = [f"takes {score:.1%} longer than {against}, over {steps:.0f} steps"]
        reasons += why.reasons
        if self._late_known[rank]:
            mean_ms = 1e3 * self._late[rank] / self._late_known[rank]
            reasons.append(f"comes {mean_ms:.3g} ms after the middle of its group")
        before = float(self._usual_excess[rank])
        if not alone and np.isfinite(before) and self._first_step[rank] > _WARM_UP:
            reasons.append(f"before step {self._first_step[rank]} it took {before:+.1%}")
        sure = 1.0 - float(np.exp(-3.0 * min(1.5, self.evidence[rank])))
        return Verdict(
            subject=Subject.RANK,
            cause=why.cause,
            score=score,
            confidence=sure * (0.5 + 0.5 * why.share) * (0.8 if alone else 1.0),
            first_step=int(self._first_step[rank]),
            cost_s=max(0.0, excess_s),
            reasons=tuple(reasons),
            rank=rank,
        )
