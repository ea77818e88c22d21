"""Scores every rank after every step: which ones are stragglers, since when and why."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from relkit.straggler.model import (
    EXCUSED,
    GC,
    LOCAL_PARTS,
    OFF_CPU,
    PARTS,
    RUN_QUEUE_WAIT,
    THROTTLED,
    Cause,
    Flags,
    Floats,
    Ints,
    Subject,
    Verdict,
)
from relkit.straggler.score.causes import attribute
from relkit.straggler.score.evidence import RankEvidence
from relkit.straggler.score.ewma import begin, ewma
from relkit.straggler.score.features import FEATURES, OWN
from relkit.straggler.score.onset import OnsetFinder
from relkit.straggler.score.peers import Peers
from relkit.straggler.score.sequential import BurstTest, ShiftTest
from relkit.straggler.score.slowdown import (
    MAX_SLOWDOWN,
    PAST_RATE,
    WARM_UP,
    SlowdownMeter,
    Slowdowns,
)
from relkit.straggler.step_record import StepTable

_LATE_SHARE = 0.25
# A rank that is slower than it was may only have got more to do.
_PAST_TELLS = 0.8
# Share of local time that is spent waiting for a core, from which on the host is short of them.
_SHORT_OF_CORES = 0.2
# A thread that is taken from its core again and again finds its caches cold: for each second that
# it waits it may run so much longer, and by such a share of what it has to do at most.
_SLOWER_BY_WAITING, _SLOWER_AT_MOST = 0.25, 0.75
_CALM_STEPS = 8
_CLEAN = 1.0
# Evidence that came to this share of the limit is reported as noise when it is dismissed.
_NOTABLE = 0.5
# Steps that are looked at together, and ranks times steps.
_MAX_BATCH, _MAX_CELLS = 128, 8192
# Steps that are taken one by one before the rest of a batch may be taken at once again.
_CLOSELY = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """What counts as slow, and how sure it must be.

    Args:
        min_slowdown: share of the step's local time, 0..1; a smaller slowdown is never raised.
        min_slowdown_short: the same where ranks wait for a core, if it is more: there, healthy
            ranks were seen to differ by 6 % for some seconds.
        shifts: slownesses that are tested for, ascending.
        false_alarm: chance that a healthy job of `horizon_steps` is accused, 0..1.
    """

    min_slowdown: float = 0.04
    min_slowdown_short: float = 0.10
    shifts: tuple[float, ...] = (0.05, 0.10, 0.20)
    false_alarm: float = 0.01
    horizon_steps: int = 10_000

    def limit(self, ranks: int) -> float:
        """Log-likelihood at which a rank is accused, of so many ranks."""
        tests = max(1, ranks) * len(FEATURES) * len(self.shifts) * self.horizon_steps
        # A CUSUM comes this close to its limit about once in exp(limit) steps; successive ones
        # are far from independent, which is why the horizon is counted by its square root.
        return float(np.log(tests / np.sqrt(self.horizon_steps) / self.false_alarm))


@dataclass(frozen=True, slots=True)
class _Batch:
    """Some steps as they are judged; all arrays have the steps first.

    Args:
        numbers: of the steps; parts: (steps, parts, ranks), s; slowdowns: what they say.
        shift, burst: log-likelihood ratios of each; summands: what RankEvidence keeps of each.
    """

    numbers: Ints
    parts: Floats
    slowdowns: Slowdowns
    shift: Floats
    burst: Floats
    summands: Floats


class RankScorer:
    """Call update() with steps as they come; it says who is a straggler after each.

    A rank is held against the median of its peers without itself, by the time that it takes
    itself: waiting for others is not in that time, so that a victim never looks slow, and neither
    is waiting for a core that others have. A rank without peers is held against its own past. It is
    accused when the evidence suffices, the slowness is worth it and lasts, no save explains it, and
    it is late in its collectives where that is known.

    Many steps at once are cheaper than one by one, and lead to the same: while no rank is near an
    accusation they are not judged one after the other.

    `recent_slowdown` and `evidence` are for tables and pictures.

    Args:
        peer_groups: one key a rank; ranks with equal keys do equal work.
        settings: what counts as slow.
    """

    def __init__(self, peer_groups: Sequence[Hashable], settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        ranks, shape = len(peer_groups), (len(FEATURES), len(peer_groups))
        self._peers = Peers(peer_groups)
        self._meter = SlowdownMeter(self._peers, ranks, self._settings.shifts)
        self._limit = self._settings.limit(ranks)
        self._shift = ShiftTest(self._settings.shifts, shape, self._limit)
        self._burst = BurstTest(ranks, self._limit)
        self._since = RankEvidence(ranks)
        self._onset = OnsetFinder(*shape)
        # What each rank took itself, by parts, and its slowdown as a share.
        self._usual = np.full((len(PARTS) + 1, ranks), np.nan)
        self._calm = np.zeros(ranks, dtype=np.int64)
        self._raised: Flags = np.zeros(ranks, dtype=bool)
        self._first_step = np.full(ranks, -1, dtype=np.int64)
        self._steps = 0
        # Who has no peers is held against what was learnt with the step before.
        self._batch_steps = max(1, min(_MAX_BATCH, _MAX_CELLS // max(1, ranks)))
        if self._peers.alone.any():
            self._batch_steps = 1

    @property
    def evidence(self) -> Floats:
        """Of each rank the evidence against it, as a share of what an accusation takes."""
        share: Floats = self._log_likelihood() / self._limit
        return share

    @property
    def suspicion(self) -> Floats:
        """The same, of what may lead to an accusation: it is worth one, lasts, has no excuse."""
        shift, feature, since, burst = self._worth_it()
        for rank in np.flatnonzero(shift >= _NOTABLE * self._limit):
            shift[rank] *= self._lasts(int(since[rank]), int(feature[rank]), int(rank))
        share: Floats = np.where(
            self._raised, self.evidence, np.maximum(shift, burst) / self._limit
        )
        return share

    def _worth_it(self) -> tuple[Floats, Ints, Ints, Floats]:
        """Of each rank the most evidence of a slowness that is worth an accusation.

        Returns:
            (log-likelihood, the feature that shows it, step since when, log-likelihood of pauses)
        """
        log_likelihood, onset = self._shift.best()
        material = self._material(log_likelihood)
        log_likelihood = np.where(material, log_likelihood, 0.0)
        feature = np.argmax(log_likelihood, axis=0)
        shift = np.take_along_axis(log_likelihood, feature[None], axis=0)[0]
        since = np.take_along_axis(onset, feature[None], axis=0)[0]
        return shift, feature, since, np.where(material[OWN], self._burst.best()[0], 0.0)

    def _log_likelihood(self) -> Floats:
        largest: Floats = np.maximum(
            self._shift.log_likelihood.max(axis=(0, 1)), self._burst.log_likelihood.max(axis=0)
        )
        return largest

    @property
    def recent_slowdown(self) -> Floats:
        """Of each rank how much longer than its peers it took in the last steps, as a share."""
        return self._meter.recent

    def update(self, tables: Sequence[StepTable]) -> list[tuple[Verdict, ...]]:
        """Take steps in their order.

        Returns:
            After each of them, who is a straggler, worst first; then the ranks whose evidence
            ended with it without an accusation (cause noise).
        """
        judged: list[tuple[Verdict, ...]] = []
        for first in range(0, len(tables), self._batch_steps):
            some = tables[first : first + self._batch_steps]
            batch = self._measure(some)
            place = 0
            while place < len(some):
                quiet = self._skip(batch, place)
                judged += [()] * quiet
                # Where something was to be said there may soon be more.
                closely = range(place + quiet, min(place + quiet + _CLOSELY, len(some)))
                judged += [self._judge(batch, at) for at in closely]
                place = closely.stop
        return judged

    def _measure(self, tables: Sequence[StepTable]) -> _Batch:
        """All that does not depend on who stands accused."""
        numbers = np.array([table.step for table in tables], dtype=np.int64)
        parts = np.stack([table.parts for table in tables])
        late_s = np.stack([table.late_s for table in tables])
        slowdowns = self._meter.take(parts, self._usual[:-1])
        bounded = np.clip(slowdowns.share, -MAX_SLOWDOWN, MAX_SLOWDOWN)
        shift = self._shift.ratio(bounded[:, None], slowdowns.sigma)
        explained = _by_the_host(parts) >= 0.5 * np.nan_to_num(slowdowns.slowdown_s[:, OWN])
        burst = self._burst.ratio(slowdowns.paused & explained, np.isfinite(slowdowns.total))
        summands = self._since.summands(parts, late_s, slowdowns)
        return _Batch(numbers, parts, slowdowns, shift, burst, summands)

    def _skip(self, batch: _Batch, first: int) -> int:
        """Take the next steps of a batch at once, up to where there may be something to say.

        Args:
            first: place of the step to begin with.

        Returns:
            How many that were: nobody stands accused, comes to be, or is let off in them.
        """
        if self._raised.any() or self._batch_steps == 1:
            return 0
        shift = self._shift.scan(batch.shift[first:])
        burst = self._burst.scan(batch.burst[first:])
        log_likelihood = np.maximum(shift.max(axis=(1, 2)), burst.max(axis=1))
        clean = log_likelihood < _CLEAN
        # With the evidence there is of any accusation, or that is dismissed with a report.
        peak = np.maximum.accumulate(np.concatenate([self._since.peak[None], log_likelihood]))[:-1]
        loud = (log_likelihood >= self._limit) | (clean & (peak >= _NOTABLE * self._limit))
        loud_steps = np.flatnonzero(loud.any(axis=1))
        steps = int(loud_steps[0]) if len(loud_steps) else len(log_likelihood)
        if not steps:
            return 0
        taken = slice(first, first + steps)
        numbers, log_likelihood, clean = batch.numbers[taken], log_likelihood[:steps], clean[:steps]
        self._shift.keep(numbers, batch.shift[taken], shift[:steps])
        self._burst.keep(numbers, batch.burst[taken], burst[:steps])
        self._onset.add(numbers, batch.slowdowns.share[taken])
        # Place of the last step of each rank that was clean.
        last = np.where(clean.any(axis=0), steps - 1 - np.argmax(clean[::-1], axis=0), -1)
        begun = np.where(last >= 0, last + 1, -1)
        self._since.skip(batch.summands[taken], begun)
        suspected = np.where(np.arange(steps)[:, None] > last, log_likelihood, 0.0)
        highest = suspected.argmax(axis=0)
        peak = suspected.max(axis=0)
        self._since.peak[last >= 0] = 0.0
        higher = peak > self._since.peak
        self._since.peak_step[higher] = numbers[highest[higher]]
        self._since.peak[higher] = peak[higher]
        self._steps += steps
        # It may be left over from one that was let go with the step before.
        self._calm[:] = 0
        self._learn_past(batch, taken, log_likelihood < 0.5 * self._limit)
        return steps

    def _judge(self, batch: _Batch, place: int) -> tuple[Verdict, ...]:
        """Take one step of a batch."""
        step = int(batch.numbers[place])
        self._shift.add(step, batch.shift[place])
        self._burst.add(step, batch.burst[place])
        taken = slice(place, place + 1)
        self._onset.add(batch.numbers[taken], batch.slowdowns.share[taken])
        self._steps += 1
        clean, dismissed = self._dismiss(step)
        self._since.add(batch.summands[place], ~clean, self._raised)
        self._decide(batch.slowdowns.recent[place])
        innocent = ~self._raised & (self.evidence < 0.5)
        self._learn_past(batch, taken, innocent[None])
        verdicts = [self._verdict(int(rank)) for rank in np.flatnonzero(self._raised)]
        accused = sorted(verdicts, key=lambda verdict: (-verdict.cost_s, verdict.rank))
        return (*accused, *dismissed)

    def _dismiss(self, step: int) -> tuple[Flags, tuple[Verdict, ...]]:
        """Forget evidence that has come to nothing; report it where it had come far."""
        log_likelihood = self._log_likelihood()
        clean: Flags = (log_likelihood < _CLEAN) & ~self._raised
        dismissed = np.flatnonzero(clean & (self._since.peak >= _NOTABLE * self._limit))
        verdicts = tuple(self._noise_verdict(int(rank)) for rank in dismissed)
        self._since.forget(clean)
        higher = log_likelihood > self._since.peak
        self._since.peak_step[higher] = step
        self._since.peak = np.where(
            clean | self._raised, 0.0, np.maximum(self._since.peak, log_likelihood)
        )
        return clean, verdicts

    def _decide(self, recent: Floats) -> None:
        """Accuse and let go; recent: of the step, as in Slowdowns."""
        shift, feature, shift_onset, burst = self._worth_it()
        burst_best, burst_onset = self._burst.best()
        since = self._since
        late = (since.late_steps == 0) | (since.late_s >= _LATE_SHARE * since.slowdown_s[OWN])
        fresh = ~self._raised & (np.maximum(shift, burst) >= self._limit) & late
        for rank in np.flatnonzero(fresh):
            which = int(feature[rank])
            first = self._onset.onset(int(shift_onset[rank]), which, int(rank))
            if shift[rank] >= self._limit and self._lasts(first, which, int(rank)):
                self._first_step[rank] = first
            elif burst[rank] >= self._limit:
                self._first_step[rank] = burst_onset[rank]
            else:
                fresh[rank] = False
        self._raised |= fresh
        quiet = recent < 0.5 * self._settings.min_slowdown
        self._calm = np.where(self._raised & quiet, self._calm + 1, 0)
        # One rule lets go of what has plainly ended, the other of what was doubtful all along.
        calm = np.where(self.evidence < 1.0, _CALM_STEPS, 4 * _CALM_STEPS)
        over = (self._calm >= calm) & (burst_best < self._limit)
        over |= (self.evidence < 0.25) | (since.slowdown_s[OWN] <= 0.0)
        over &= self._raised
        self._raised &= ~over
        # What is left of the evidence must not raise it again.
        self._shift.forget(over)
        self._burst.forget(over)
        since.forget(over)

    def _lasts(self, first_step: int, feature: int, rank: int) -> bool:
        """Not a few steps are slow since then, as of one that saves now and then, but most."""
        return self._onset.lasts(first_step, feature, rank, self._settings.min_slowdown)

    def _material(self, log_likelihood: Floats) -> Flags:
        """(features, ranks): the slowdown is worth an accusation, and nothing excuses it."""
        since, least = self._since, self._settings.min_slowdown
        waits_s = np.fmax(since.mine_s[RUN_QUEUE_WAIT], since.theirs_s[RUN_QUEUE_WAIT])
        is_short = waits_s >= _SHORT_OF_CORES * since.usual_s
        least_if_short = max(least, self._settings.min_slowdown_short)
        min_s = np.where(is_short, least_if_short, least) * since.usual_s
        more_s = np.maximum(since.mine_s - since.theirs_s, 0.0)
        cold_s = np.minimum(
            _SLOWER_BY_WAITING * more_s[RUN_QUEUE_WAIT], _SLOWER_AT_MOST * _running(since.theirs_s)
        )
        own_s = since.slowdown_s[OWN] - more_s[EXCUSED] - cold_s
        material: Flags = (since.slowdown_s >= min_s) & (own_s >= min_s) & (own_s > 0.0)
        # Kernels, input and sleep take longer where the host has no core for somebody, and only of
        # all own time is it known by how much.
        material &= ~is_short | (log_likelihood[OWN] >= self._limit)
        return material

    def _learn_past(self, batch: _Batch, steps: slice, innocent: Flags) -> None:
        """What each rank takes when nothing is wrong with it.

        Args:
            steps: of the batch; innocent: (steps, ranks), who nothing is held against in them.
        """
        total = np.clip(batch.slowdowns.total[steps], -MAX_SLOWDOWN, MAX_SLOWDOWN)
        values = np.concatenate([batch.parts[steps], total[:, None]], axis=1)
        known = innocent[:, None] & np.isfinite(values)
        values = np.where(known, values, 0.0)
        begin(self._usual, values, known)
        count = self._steps - len(values) + 1 + np.arange(len(values))
        rate = np.maximum(PAST_RATE, 1.0 / count)[:, None, None]
        ewma(self._usual, values, np.where(known, rate, 0.0))

    def _score(self, rank: int) -> tuple[float, float]:
        """(slowdown as a share, slowdown in s) since evidence began to gather."""
        slowdown_s = float(self._since.slowdown_s[OWN, rank])
        usual_s = float(self._since.usual_s[rank])
        return slowdown_s / usual_s if usual_s > 0.0 else 0.0, slowdown_s

    def _verdict(self, rank: int) -> Verdict:
        since = self._since
        steps = max(float(since.steps[rank]), 1.0)
        score, slowdown_s = self._score(rank)
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
        # What less than half of the slowdown is explained by may be no fault of the rank's.
        sure *= min(1.0, 0.5 + why.share)
        return Verdict(
            subject=Subject.RANK,
            cause=why.cause,
            score=score,
            confidence=sure * (_PAST_TELLS if alone else 1.0),
            first_step=first,
            cost_s=max(0.0, slowdown_s),
            reasons=tuple(reasons),
            rank=rank,
        )

    def _noise_verdict(self, rank: int) -> Verdict:
        score, slowdown_s = self._score(rank)
        share = float(self._since.peak[rank] / self._limit)
        steps = float(self._since.steps[rank])
        reasons = (
            f"took {score:.1%} longer than usual over {steps:.0f} steps, and no longer does",
            f"evidence came to {share:.0%} of what an accusation takes, at step "
            f"{int(self._since.peak_step[rank])}",
        )
        return Verdict(
            Subject.RANK, Cause.NOISE, score, max(0.0, 1.0 - share),
            int(self._since.peak_step[rank]), max(0.0, slowdown_s), reasons, rank=rank,
        )  # fmt: skip


def _running(parts_s: Floats) -> Floats:
    """Seconds that main threads ran outside of collectives."""
    local_s = parts_s[:LOCAL_PARTS].sum(axis=0)
    running_s: Floats = local_s - parts_s[RUN_QUEUE_WAIT] - np.nan_to_num(parts_s[OFF_CPU])
    return np.maximum(running_s, 0.0)


def _by_the_host(parts: Floats) -> Floats:
    """Seconds of each rank that collections or its cgroup took."""
    collected_s, stopped_s = (np.nan_to_num(parts[..., at, :]) for at in (GC, THROTTLED))
    host_s: Floats = np.maximum(collected_s, stopped_s)
    return host_s
