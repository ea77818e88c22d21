"""Scores every rank after every step, and says which ones are stragglers, since when and why."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from relkit.straggler.model import PARTS, Cause, Flags, Floats, Ints, StepTable, Subject, Verdict
from relkit.straggler.score.causes import attribute
from relkit.straggler.score.evidence import Suspicion
from relkit.straggler.score.ewma import begin, smooth
from relkit.straggler.score.features import CHANNELS, COMPUTE, UNSTARVED, WHOLE
from relkit.straggler.score.peers import Peers
from relkit.straggler.score.sequential import BurstTest, ShiftTest
from relkit.straggler.score.slowdown import MOST_EXCESS, PAST_RATE, WARM_UP, Excess, ExcessMeter

_GC, _THROTTLED = PARTS.index("gc"), PARTS.index("throttled")
_LATE_SHARE = 0.25
_CALM_STEPS = 8
_HARDLY = 1.0
_WANDERS_STEPS = 10.0
_WANDERS_TIMES = 4.0
# Where hardly anybody waits for a core: what takes one for a moment is nobody's fault.
_MOMENT_STEPS = 30.0
# A suspicion that came to this share of the limit is worth a word when it ends.
_REMARKABLE = 0.5
# Steps that are looked at together, and ranks times steps.
_TOGETHER, _MOST_CELLS = 128, 8192
# Steps that are taken one by one before the rest of a batch may be taken at once again.
_CLOSELY = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """What counts as slow, and how sure it must be.

    Args:
        min_slowdown: share of the step's local time, 0..1; a smaller slowdown is never raised.
        least_starved: the same, where the rank is slow only by waiting for a core, and its peers
            wait for theirs too; where they do not, or hardly, it may be less.
        shifts: slownesses that are tested for, ascending.
        false_alarm: chance that a healthy job of `horizon_steps` is accused, 0..1.
    """

    min_slowdown: float = 0.04
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


@dataclass(frozen=True, slots=True)
class Judged:
    """What one step has led to.

    Args:
        accused: who is a straggler after it, worst first.
        faded: the suspicions that ended with it without an accusation (cause noise).
    """

    accused: tuple[Verdict, ...] = ()
    faded: tuple[Verdict, ...] = ()


_NOTHING = Judged()


@dataclass(frozen=True, slots=True)
class _Batch:
    """Some steps as they are judged; all arrays have the steps first.

    Args:
        numbers: of the steps; parts: (steps, parts, ranks), s; seen: what they say.
        shift, burst: what the tests make of each; summands: what a suspicion keeps of each.
        total: excess of the whole as a share, (steps, ranks).
    """

    numbers: Ints
    parts: Floats
    seen: Excess
    shift: Floats
    burst: Floats
    summands: Floats
    total: Floats


class RankScorer:
    """Call update() with steps as they come; it says who is a straggler after each.

    A rank is held against the median of its peers without itself, by the time that it takes
    itself: waiting for others is not in that time, so that a victim never looks slow. A rank
    without peers is held against its own past. It is accused when the evidence suffices, the
    slowness is worth it, and it is really late in its collectives where arrivals are known.

    Many steps at once are cheaper than one by one, and lead to the same: while no rank is near an
    accusation they are not judged one after the other.

    `recent_excess` and `evidence` are for tables and pictures.

    Args:
        positions: one key a rank (Position.peers); ranks with equal keys do equal work.
        settings: what counts as slow.
    """

    def __init__(self, positions: Sequence[Hashable], settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        ranks, shape = len(positions), (len(CHANNELS), len(positions))
        self._peers = Peers(positions)
        self._meter = ExcessMeter(self._peers, ranks, self._settings.shifts)
        self._limit = self._settings.limit(ranks)
        self._shift = ShiftTest(self._settings.shifts, shape, self._limit)
        self._burst = BurstTest(ranks, self._limit)
        self._since = Suspicion(ranks)
        # What each rank took itself, by parts, and its excess as a share.
        self._usual = np.full((len(PARTS) + 1, ranks), np.nan)
        self._calm = np.zeros(ranks, dtype=np.int64)
        self._raised: Flags = np.zeros(ranks, dtype=bool)
        self._first_step = np.full(ranks, -1, dtype=np.int64)
        self._peak = np.zeros(ranks)
        self._peak_step = np.zeros(ranks, dtype=np.int64)
        self._steps = 0
        # Who has no peers is held against what was learnt with the step before.
        self._together = max(1, min(_TOGETHER, _MOST_CELLS // max(1, ranks)))
        if self._peers.alone.any():
            self._together = 1

    @property
    def evidence(self) -> Floats:
        """Of each rank the nats against it, as a share of what an accusation takes."""
        share: Floats = self._nats() / self._limit
        return share

    def _nats(self) -> Floats:
        most: Floats = np.maximum(self._shift.nats.max(axis=(0, 1)), self._burst.nats.max(axis=0))
        return most

    @property
    def recent_excess(self) -> Floats:
        """Of each rank how much longer than its peers it took in the last steps, as a share."""
        return self._meter.recent

    def update(self, tables: Sequence[StepTable]) -> list[Judged]:
        """Take steps in their order, and say what came of each."""
        found: list[Judged] = []
        for first in range(0, len(tables), self._together):
            some = tables[first : first + self._together]
            batch = self._measure(some)
            place = 0
            while place < len(some):
                quiet = self._skip(batch, place)
                found += [_NOTHING] * quiet
                # Where something was to be said there may soon be more.
                closely = range(place + quiet, min(place + quiet + _CLOSELY, len(some)))
                found += [self._judge(batch, at) for at in closely]
                place = closely.stop
        return found

    def _measure(self, tables: Sequence[StepTable]) -> _Batch:
        """All that does not depend on who stands accused."""
        numbers = np.array([one.step for one in tables], dtype=np.int64)
        parts = np.stack([one.parts for one in tables])
        late_s = np.stack([one.late_s for one in tables])
        seen = self._meter.take(parts, self._usual[:-1])
        bounded = np.clip(seen.share, -MOST_EXCESS, MOST_EXCESS)
        shift = self._shift.ratio(bounded[:, None], seen.sigma)
        total = seen.share[:, WHOLE]
        explained = _by_the_host(parts) >= 0.5 * np.nan_to_num(seen.excess_s[:, WHOLE])
        burst = self._burst.ratio(seen.paused, explained, np.isfinite(total))
        summands = self._since.summands(parts, late_s, seen)
        return _Batch(numbers, parts, seen, shift, burst, summands, total)

    def _skip(self, batch: _Batch, first: int) -> int:
        """Take the next steps of a batch at once, up to where there may be something to say.

        Args:
            first: place of the step to begin with.

        Returns:
            How many that were: nobody stands accused, comes to be, or is let off in them.
        """
        if self._raised.any() or self._together == 1:
            return 0
        shift = self._shift.scan(batch.shift[first:])
        burst = self._burst.scan(batch.burst[first:])
        nats = np.maximum(shift.max(axis=(1, 2)), burst.max(axis=1))
        clean = nats < _HARDLY
        # With the evidence there is of any accusation, or that ends a suspicion with a word.
        peak = np.maximum.accumulate(np.concatenate([self._peak[None], nats]))[:-1]
        loud = (nats >= self._limit) | (clean & (peak >= _REMARKABLE * self._limit))
        loud_steps = np.flatnonzero(loud.any(axis=1))
        steps = int(loud_steps[0]) if len(loud_steps) else len(nats)
        if not steps:
            return 0
        taken = slice(first, first + steps)
        numbers, nats, clean = batch.numbers[taken], nats[:steps], clean[:steps]
        self._shift.keep(numbers, batch.shift[taken], shift[:steps])
        self._burst.keep(numbers, batch.burst[taken], burst[:steps])
        # Place of the last step of each rank that was clean.
        last = np.where(clean.any(axis=0), steps - 1 - np.argmax(clean[::-1], axis=0), -1)
        begun = np.where(last >= 0, last + 1, -1)
        self._since.skip(batch.summands[taken], begun)
        suspected = np.where(np.arange(steps)[:, None] > last, nats, 0.0)
        highest = suspected.argmax(axis=0)
        peak = suspected.max(axis=0)
        self._peak[last >= 0] = 0.0
        higher = peak > self._peak
        self._peak_step[higher] = numbers[highest[higher]]
        self._peak[higher] = peak[higher]
        self._steps += steps
        # It may be left over from one that was let go with the step before.
        self._calm[:] = 0
        self._learn_past(batch, taken, nats < 0.5 * self._limit)
        return steps

    def _judge(self, batch: _Batch, place: int) -> Judged:
        """Take one step of a batch."""
        step = int(batch.numbers[place])
        self._shift.add(step, batch.shift[place])
        self._burst.add(step, batch.burst[place])
        self._steps += 1
        ended, faded = self._end_suspicions(step)
        self._since.add(batch.summands[place], ~ended, self._raised)
        self._decide(batch.seen.recent[place], batch.seen.usual_wait[place])
        innocent = ~self._raised & (self.evidence < 0.5)
        self._learn_past(batch, slice(place, place + 1), innocent[None])
        found = [self._verdict(int(rank)) for rank in np.flatnonzero(self._raised)]
        accused = sorted(found, key=lambda verdict: (-verdict.cost_s, verdict.rank))
        return Judged(tuple(accused), faded)

    def _end_suspicions(self, step: int) -> tuple[Flags, tuple[Verdict, ...]]:
        """Forget what has come to nothing; say so where it had come far."""
        nats = self._nats()
        clean: Flags = (nats < _HARDLY) & ~self._raised
        faded = np.flatnonzero(clean & (self._peak >= _REMARKABLE * self._limit))
        told = tuple(self._noise_verdict(int(rank)) for rank in faded)
        self._since.forget(clean)
        higher = nats > self._peak
        self._peak_step[higher] = step
        self._peak = np.where(clean | self._raised, 0.0, np.maximum(self._peak, nats))
        return clean, told

    def _decide(self, recent: Floats, usual_wait: Floats) -> None:
        """Accuse and let go; recent, usual_wait: of the step, as Excess has them."""
        nats, onset = self._shift.best()
        burst_nats, burst_onset = self._burst.best()
        since = self._since
        material = self._material(nats, usual_wait)
        nats = np.where(material, nats, 0.0)
        channel = np.argmax(nats, axis=0)[None]
        shift = np.take_along_axis(nats, channel, axis=0)[0]
        shift_onset = np.take_along_axis(onset, channel, axis=0)[0]
        burst = np.where(material[WHOLE], burst_nats, 0.0)
        late = (since.late_steps == 0) | (since.late_s >= _LATE_SHARE * since.excess_s[WHOLE])
        fresh = ~self._raised & (np.maximum(shift, burst) >= self._limit) & late
        self._first_step[fresh] = np.where(shift >= burst, shift_onset, burst_onset)[fresh]
        self._raised |= fresh
        quiet = recent < 0.5 * self._settings.min_slowdown
        self._calm = np.where(self._raised & quiet, self._calm + 1, 0)
        # One rule lets go of what has plainly ended, the other of what was doubtful all along.
        calm = np.where(self.evidence < 1.0, _CALM_STEPS, 4 * _CALM_STEPS)
        over = (self._calm >= calm) & (burst_nats < self._limit)
        over |= (self.evidence < 0.25) | (since.excess_s[WHOLE] <= 0.0)
        over &= self._raised
        self._raised &= ~over
        # What is left of the evidence must not raise it again.
        self._shift.forget(over)
        self._burst.forget(over)
        since.forget(over)

    def _material(self, nats: Floats, usual_wait: Floats) -> Flags:
        """(channels, ranks): the excess is worth an accusation, and not just the machine's."""
        since = self._since
        whole_s = since.excess_s[WHOLE]
        least_s = self._settings.min_slowdown * since.usual_s
        # Where the peers starve meanwhile, the whole says less than what is left without that.
        more_s = np.maximum(whole_s, since.excess_s[UNSTARVED])
        found: Flags = (since.excess_s >= least_s) & (more_s >= least_s) & (whole_s > 0.0)
        # What others take from a core wanders from rank to rank, for seconds at a time: it must
        # be more than usual, and the shorter it is seen the more so; or the rest speaks too.
        steps = np.maximum(since.steps, 1.0)
        wander = np.minimum(_WANDERS_TIMES * usual_wait, self._settings.least_starved)
        moment = 0.75 * self._settings.min_slowdown * (1.0 + _MOMENT_STEPS / steps)
        wander_s = np.maximum(wander * (1.0 + _WANDERS_STEPS / steps), moment) * since.usual_s
        own = found[UNSTARVED] & (nats[UNSTARVED] >= self._limit)
        sure = own | (since.lasting_s >= wander_s)
        found[COMPUTE] &= sure
        found[WHOLE] &= sure
        return found

    def _learn_past(self, batch: _Batch, steps: slice, innocent: Flags) -> None:
        """What each rank takes when nothing is wrong with it.

        Args:
            steps: of the batch; innocent: (steps, ranks), who nothing is held against in them.
        """
        total = np.clip(batch.total[steps], -MOST_EXCESS, MOST_EXCESS)
        values = np.concatenate([batch.parts[steps], total[:, None]], axis=1)
        known = innocent[:, None] & np.isfinite(values)
        values = np.where(known, values, 0.0)
        begin(self._usual, values, known)
        count = self._steps - len(values) + 1 + np.arange(len(values))
        rate = np.maximum(PAST_RATE, 1.0 / count)[:, None, None]
        smooth(self._usual, values, np.where(known, rate, 0.0))

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
        before = float(self._usual[-1, rank])
        first = int(self._first_step[rank])
        if not alone and np.isfinite(before) and first > WARM_UP:
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
    collected_s, stopped_s = (np.nan_to_num(parts[..., at, :]) for at in (_GC, _THROTTLED))
    found: Floats = np.maximum(collected_s, stopped_s)
    return found
