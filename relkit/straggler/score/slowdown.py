"""How much slower than its peers each rank is in every step, and how far that scatters anyway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relkit.straggler.model import LOCAL_PARTS, PARTS, Flags, Floats
from relkit.straggler.score.ewma import begin, ewma
from relkit.straggler.score.features import FEATURES, OFF_CPU, OWN, features
from relkit.straggler.score.noise import NoiseLevel
from relkit.straggler.score.peers import Peers

WARM_UP = 8
PAST_RATE = 1.0 / 16.0
MAX_SLOWDOWN = 1.0
_CENTRE_RATE = 1.0 / 64.0
_RECENT_RATE = 1.0 / 8.0
_BURST = 0.2
_BURST_SIGMAS = 6.0
_STEPS_TIMES_SHIFT = 1.6
# A step that takes the peers so many times what is usual is held against itself alone.
_ODD_TIMES = 2.0


@dataclass(frozen=True, slots=True)
class Slowdowns:
    """How slow all ranks are in some steps, whoever stands accused.

    Args:
        reference_s: of the peers, (steps, parts, ranks); usual_s: their local time, (steps, ranks).
        slowdown_s: over that, (steps, features, ranks), s.
        share: the same by the usual time, without the slowdown of a healthy rank.
        sigma: of share, by the slowness tested for, (steps, shifts, features, ranks).
        paused: who took so much longer that it was no ordinary scatter, (steps, ranks).
        recent: share of all of its own time, averaged over the last steps, (steps, ranks).
    """

    reference_s: Floats
    usual_s: Floats
    slowdown_s: Floats
    share: Floats
    sigma: Floats
    paused: Flags
    recent: Floats

    @property
    def total(self) -> Floats:
        """Share of all of its own time, (steps, ranks)."""
        own: Floats = self.share[:, OWN]
        return own


class SlowdownMeter:
    """Call take() with steps in their order; it learns from all of them, slow ranks or not.

    Args:
        peers: who is held against whom; ranks: how many.
        shifts: slownesses that are tested for.
    """

    def __init__(self, peers: Peers, ranks: int, shifts: Sequence[float]) -> None:
        self._peers, self._shifts = peers, tuple(shifts)
        self._noise = NoiseLevel(len(FEATURES), ranks, peers.independent)
        self._scale_s = np.full(ranks, np.nan)
        self._means = np.zeros((len(FEATURES), ranks))
        self._recent = np.zeros(ranks)
        self._steps = 0

    @property
    def recent(self) -> Floats:
        """Of each rank how much longer than its peers it took in the last steps, as a share."""
        return self._recent.copy()

    def take(self, parts: Floats, past_s: Floats) -> Slowdowns:
        """Some steps.

        Args:
            parts: (steps, parts, ranks), s; past_s: (parts, ranks), what each rank itself took
                before, to hold those against that have no peers; where there are such ranks it
                takes one step at a time.
        """
        count = self._steps + 1 + np.arange(len(parts))
        took_s = features(parts)
        reference_s, usual_s = self._reference(parts, took_s, past_s)
        # A quotient of two noisy times is above 1 on average: the divisor must be a steady one.
        # And of all local time: what is much of the little that is left between waits costs little.
        local_s = reference_s[:, :LOCAL_PARTS].sum(axis=1)
        scale_s = self._steady(local_s, np.maximum(PAST_RATE, 1.0 / count))
        slowdown_s = took_s - usual_s
        # Off-CPU time may be unknown where all the rest is known.
        slowdown_s[:, OFF_CPU] = np.where(
            np.isfinite(slowdown_s[:, OWN]), np.nan_to_num(slowdown_s[:, OFF_CPU]), np.nan
        )
        raw = slowdown_s / scale_s[:, None]
        noise = self._noise.update(raw)
        share = raw - self._usual(raw, np.maximum(_CENTRE_RATE, 1.0 / count))
        total = share[:, OWN]
        known, least = np.isfinite(total), _BURST_SIGMAS * noise.spread()[:, OWN]
        total = np.nan_to_num(total)
        self._steps += len(parts)
        return Slowdowns(
            reference_s=reference_s,
            usual_s=local_s,
            slowdown_s=slowdown_s,
            share=share,
            sigma=np.stack([noise.sigma(_steps_to_tell(s)) for s in self._shifts], axis=1),
            paused=known & (total > np.maximum(_BURST, least)[:, None]),
            recent=ewma(self._recent, total, np.where(known, _RECENT_RATE, 0.0)),
        )

    def _reference(self, parts: Floats, took_s: Floats, past_s: Floats) -> tuple[Floats, Floats]:
        """What the peers took, by parts and by features."""
        both = self._peers.median_of_others(np.concatenate([parts, took_s], axis=1))
        reference_s, usual_s = both[:, : len(PARTS)], both[:, len(PARTS) :]
        alone = self._peers.alone
        if alone.any() and self._steps >= WARM_UP:
            reference_s[..., alone] = past_s[:, alone]
            usual_s[..., alone] = features(past_s[:, alone])
        return reference_s, usual_s

    def _steady(self, usual_s: Floats, rate: Floats) -> Floats:
        """What a step usually takes each rank's peers, (steps, ranks)."""
        known = np.isfinite(usual_s) & (usual_s > 0.0)
        first = begin(self._scale_s, usual_s, known)
        weights = np.where(known, rate[:, None], 0.0)
        values = np.where(known, usual_s, 0.0)
        # A checkpoint that takes as long as a hundred steps says nothing of those.
        steady_s = ewma(self._scale_s, values, weights, _ODD_TIMES)
        steady_s = np.where(values > _ODD_TIMES * steady_s, values, steady_s)
        steady_s[np.arange(len(steady_s))[:, None] < first] = np.nan
        return steady_s

    def _usual(self, raw: Floats, rate: Floats) -> Floats:
        """The slowdown of a healthy rank: not 0 where noise is lopsided."""
        values = np.clip(raw, -MAX_SLOWDOWN, MAX_SLOWDOWN)
        known = np.isfinite(values)
        weights = np.where(known, rate[:, None, None], 0.0)
        means = ewma(self._means, np.where(known, values, 0.0), weights)
        centre: Floats = np.maximum(np.median(means, axis=2, keepdims=True), 0.0)
        return centre


def _steps_to_tell(shift: float) -> int:
    """Noise that lasts longer than this does not matter to the test for this slowness: it takes
    half as many steps for twice the slowness, or less.
    """
    return max(8, round(_STEPS_TIMES_SHIFT / shift))
