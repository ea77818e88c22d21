"""Scores every rank after every step, and says which ones are stragglers, since when and why."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from relkit.straggler.causes import attribute
from relkit.straggler.channels import CHANNELS, COMPUTE, UNSTARVED, WHOLE, channels
from relkit.straggler.model import PARTS, Cause, Flags, Floats, StepTable, Subject, Verdict
from relkit.straggler.noise import NoiseLevel
from relkit.straggler.peers import Peers
from relkit.straggler.sequential import BurstTest, ShiftTest
from relkit.straggler.suspicion import Suspicion

_GC, _THROTTLED = PARTS.index("gc"), PARTS.index("throttled")
_ASLEEP = CHANNELS.index("asleep")
_STEPS_TIMES_SHIFT = 1.6
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
_WANDERS_STEPS = 10.0
_WANDERS_TIMES = 4.0
# Where hardly anybody waits for a core: what takes one for a moment is nobody's fault.
_MOMENT_STEPS = 30.0
# A suspicion that came to this share of the limit is worth a word when it ends.
_REMARKABLE = 0.5


@dataclass(frozen=True, slots=True)
class Settings:
    """What counts as slow, and how sure it must be.

    Args:
        least_slowdown: share of the step's own time, 0..1; less is never raised.
        least_starved: the same, where the rank is slow only by waiting for a core, and its peers
            wait for theirs too; where they do not, or hardly, it may be less.
        shifts: slownesses that are tested for, ascending.
        false_alarm: chance that a healthy job of `horizon_steps` is accused, 0..1.
    """

    least_slowdown: float = 0.04
    least_starved: float = 0.08
    shifts: tuple[float, ...] = (0.05, 0.10, 0.20)
    false_alarm: float = 0.01
    horizon_steps: int = 10_000

    def limit(self, ranks: int) -> float:
        """Nats at which a rank is accused, of so many ranks."""
        tests = max(1, ranks) * len(CHANNELS) * len(self.shifts) * self.horizon_steps
        # A CUSUM comes this close to its limit about once in exp(limit) steps; successive ones
        # are far from independent, which is why the horizon is counted by its square root.
        return float(np.log(tests / np.sqrt(self.horizon_steps) / self.false_alarm))


class RankScorer:
    """Call update() after each step; it says who is a straggler now.

    A rank is held against the median of its peers without itself, by the time that it takes
    itself: waiting for others is not in that time, so that a victim never looks slow. A rank
    without peers is held against its own past. It is accused when the evidence suffices, the
    slowness is worth it, and it is really late in its collectives where arrivals are known.

    `faded` has the suspicions that ended with the last step without an accusation (cause noise),
    `recent_excess` and `evidence` are for tables and pictures.

    Args:
        positions: one key a rank (Position.peers); ranks with equal keys do equal work.
        settings: what counts as slow.
    """

    def __init__(self, positions: Sequence[Hashable], settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        ranks, shape = len(positions), (len(CHANNELS), len(positions))
        self._peers = Peers(positions)
        self._noise = NoiseLevel(*shape, self._peers.independent)
        self._limit = self._settings.limit(ranks)
        self._shift = ShiftTest(self._settings.shifts, shape, self._limit)
        self._burst = BurstTest(ranks, self._limit)
        self._since = Suspicion(ranks)
        self._past = np.full((len(PARTS), ranks), np.nan)
        self._usual_excess = np.full(ranks, np.nan)
        self._recent = np.zeros(ranks)
        self._calm = np.zeros(ranks, dtype=np.int64)
        self._raised: Flags = np.zeros(ranks, dtype=bool)
        self._first_step = np.full(ranks, -1, dtype=np.int64)
        self._scale_s = np.full(ranks, np.nan)
        self._mean_excess = np.zeros(shape)
        self._waits, self._usual_wait = np.zeros(ranks), np.zeros(ranks)
        self._peak = np.zeros(ranks)
        self._peak_step = np.zeros(ranks, dtype=np.int64)
        self._steps = 0
        self.faded: tuple[Verdict, ...] = ()

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
        took_s = channels(table.parts)
        reference, usual_s = self._reference(table.parts, took_s)
        # A quotient of two noisy times is above 1 on average: the divisor must be a steady one.
        scale_s = self._steady(usual_s[WHOLE])
        excess_s = took_s - usual_s
        # Sleep may be unknown where all the rest is known.
        excess_s[_ASLEEP] = np.where(
            np.isfinite(excess_s[WHOLE]), np.nan_to_num(excess_s[_ASLEEP]), np.nan
        )
        excess = excess_s / scale_s
        self._noise.update(excess)
        excess = excess - self._centre(excess)
        total = excess[WHOLE]
        known = np.isfinite(total)
        sigma = np.stack([self._noise.sigma(_steps_to_tell(s)) for s in self._settings.shifts])
        self._shift.update(table.step, np.clip(excess, -_MOST_EXCESS, _MOST_EXCESS), sigma)
        burst = max(_BURST, _BURST_SIGMAS * float(self._noise.spread()[WHOLE]))
        hit = known & (np.nan_to_num(total) > burst)
        explained = _by_the_host(table.parts) >= 0.5 * np.nan_to_num(excess_s[WHOLE])
        self._burst.update(table.step, hit, explained, known)
        self._learn_waits(took_s, scale_s)
        self._steps += 1
        ended = self._end_suspicions(table.step)
        self._since.add(table, reference, excess_s, usual_s[WHOLE], ~ended, self._raised)
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

    def _reference(self, parts: Floats, took_s: Floats) -> tuple[Floats, Floats]:
        """What the peers took, by parts and by channels."""
        both = self._peers.median_of_others(np.concatenate([parts, took_s]))
        reference, usual_s = both[: len(PARTS)], both[len(PARTS) :]
        if self._peers.alone.any() and self._steps >= _WARM_UP:
            alone = self._peers.alone
            reference[:, alone] = self._past[:, alone]
            usual_s[:, alone] = channels(self._past[:, alone])
        return reference, usual_s

    def _end_suspicions(self, step: int) -> Flags:
        """Forget what has come to nothing; say so where it had come far."""
        nats = np.maximum(self._shift.nats.max(axis=(0, 1)), self._burst.nats)
        clean: Flags = (nats < _HARDLY) & ~self._raised
        faded = np.flatnonzero(clean & (self._peak >= _REMARKABLE * self._limit))
        self.faded = tuple(self._noise_verdict(int(rank)) for rank in faded)
        self._since.forget(clean)
        higher = nats > self._peak
        self._peak_step[higher] = step
        self._peak = np.where(clean | self._raised, 0.0, np.maximum(self._peak, nats))
        return clean

    def _decide(self) -> None:
        nats, onset = self._shift.best()
        since = self._since
        material = self._material(nats)
        nats = np.where(material, nats, 0.0)
        channel = np.argmax(nats, axis=0)[None]
        shift = np.take_along_axis(nats, channel, axis=0)[0]
        shift_onset = np.take_along_axis(onset, channel, axis=0)[0]
        burst = np.where(material[WHOLE], self._burst.nats, 0.0)
        late = (since.late_steps == 0) | (since.late_s >= _LATE_SHARE * since.excess_s[WHOLE])
        fresh = ~self._raised & (np.maximum(shift, burst) >= self._limit) & late
        self._first_step[fresh] = np.where(shift >= burst, shift_onset, self._burst.onset)[fresh]
        self._raised |= fresh
        quiet = self._recent < 0.5 * self._settings.least_slowdown
        self._calm = np.where(self._raised & quiet, self._calm + 1, 0)
        # One rule lets go of what has plainly ended, the other of what was doubtful all along.
        calm = np.where(self.evidence < 1.0, _CALM_STEPS, 4 * _CALM_STEPS)
        over = (self._calm >= calm) & (self._burst.nats < self._limit)
        over |= (self.evidence < 0.25) | (since.excess_s[WHOLE] <= 0.0)
        over &= self._raised
        self._raised &= ~over
        # What is left of the evidence must not raise it again.
        self._shift.forget(over)
        self._burst.forget(over)
        since.forget(over)

    def _material(self, nats: Floats) -> Flags:
        """(channels, ranks): the excess is worth an accusation, and not just the machine's."""
        since = self._since
        whole_s = since.excess_s[WHOLE]
        least_s = self._settings.least_slowdown * since.usual_s
        # Where the peers starve meanwhile, the whole says less than what is left without that.
        more_s = np.maximum(whole_s, since.excess_s[UNSTARVED])
        found: Flags = (since.excess_s >= least_s) & (more_s >= least_s) & (whole_s > 0.0)
        # What others take from a core wanders from rank to rank, for seconds at a time: it must
        # be more than usual, and the shorter it is seen the more so; or the rest speaks too.
        steps = np.maximum(since.steps, 1.0)
        wander = np.minimum(_WANDERS_TIMES * self._usual_wait, self._settings.least_starved)
        moment = 0.75 * self._settings.least_slowdown * (1.0 + _MOMENT_STEPS / steps)
        wander_s = np.maximum(wander * (1.0 + _WANDERS_STEPS / steps), moment) * since.usual_s
        own = found[UNSTARVED] & (nats[UNSTARVED] >= self._limit)
        sure = own | (since.lasting_s >= wander_s)
        found[COMPUTE] &= sure
        found[WHOLE] &= sure
        return found

    def _learn_waits(self, took_s: Floats, scale_s: Floats) -> None:
        """How much the peers usually wait for a core, as a share of a step."""
        share = (took_s[WHOLE] - took_s[UNSTARVED]) / scale_s
        rate = max(_CENTRE_RATE, 1.0 / (self._steps + 1))
        known = np.isfinite(share)
        self._waits[known] += rate * (share[known] - self._waits[known])
        peers = self._peers.median_of_others(self._waits)
        self._usual_wait = np.where(np.isfinite(peers), peers, self._waits)

    def _learn_past(self, parts: Floats, total: Floats) -> None:
        innocent = ~self._raised & (self.evidence < 0.5)
        rate = max(_PAST_RATE, 1.0 / self._steps)
        with_past = np.isfinite(self._past)
        moved = np.where(with_past, self._past + rate * (parts - self._past), parts)
        self._past = np.where(innocent & np.isfinite(moved), moved, self._past)
        usual = np.where(np.isfinite(self._usual_excess), self._usual_excess, total)
        usual = usual + rate * (np.clip(total, -_MOST_EXCESS, _MOST_EXCESS) - usual)
        self._usual_excess = np.where(innocent & np.isfinite(usual), usual, self._usual_excess)

    def _score(self, rank: int) -> tuple[float, float]:
        """(excess as a share, excess in s) since suspicion began."""
        excess_s = float(self._since.excess_s[WHOLE, rank])
        usual_s = float(self._since.usual_s[rank])
        return excess_s / usual_s if usual_s > 0.0 else 0.0, excess_s

    def _verdict(self, rank: int) -> Verdict:
        since = self._since
        steps = max(float(since.steps[rank]), 1.0)
        score, excess_s = self._score(rank)
        why = attribute(since.mine_s[:, rank] / steps, since.theirs_s[:, rank] / steps)
        alone = bool(self._peers.alone[rank])
        against = "its own past (it has no peers)" if alone else "the median of its peers"
        reasons = [f"takes {score:.1%} longer than {against}, over {steps:.0f} steps"]
        reasons += why.reasons
        if since.late_steps[rank]:
            mean_ms = 1e3 * since.late_s[rank] / since.late_steps[rank]
            reasons.append(f"comes {mean_ms:.3g} ms a step after the middle of its groups")
        before = float(self._usual_excess[rank])
        first = int(self._first_step[rank])
        if not alone and np.isfinite(before) and first > _WARM_UP:
            reasons.append(f"before step {first} it took {before:+.1%} against its peers")
        sure = 1.0 - float(np.exp(-3.0 * min(1.5, self.evidence[rank])))
        return Verdict(
            subject=Subject.RANK,
            cause=why.cause,
            score=score,
            confidence=sure * (0.5 + 0.5 * why.share) * (0.8 if alone else 1.0),
            first_step=first,
            cost_s=max(0.0, excess_s),
            reasons=tuple(reasons),
            rank=rank,
        )

    def _noise_verdict(self, rank: int) -> Verdict:
        score, excess_s = self._score(rank)
        share = float(self._peak[rank] / self._limit)
        steps = float(self._since.steps[rank])
        reasons = (
            f"took {score:.1%} longer than usual over {steps:.0f} steps, and no longer does",
            f"evidence came to {share:.0%} of what an accusation takes, at step "
            f"{int(self._peak_step[rank])}",
        )
        return Verdict(
            Subject.RANK, Cause.NOISE, score, max(0.0, 1.0 - share),
            int(self._peak_step[rank]), max(0.0, excess_s), reasons, rank=rank,
        )  # fmt: skip


def _by_the_host(parts: Floats) -> Floats:
    """Seconds of each rank that collections or its cgroup took."""
    found: Floats = np.maximum(np.nan_to_num(parts[_GC]), np.nan_to_num(parts[_THROTTLED]))
    return found


def _steps_to_tell(shift: float) -> int:
    """Noise that lasts longer than this does not matter to the test for this slowness: it takes
    half as many steps for twice the slowness, or less.
    """
    return max(8, round(_STEPS_TIMES_SHIFT / shift))
