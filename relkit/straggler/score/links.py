"""Which edge or interface is slow, by the transfers that started when everybody was there."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from relkit.straggler.history_types import LinkRow, worst_first
from relkit.straggler.model import Cause, Subject, Verdict
from relkit.straggler.score.sequential import ShiftTest

Edge = tuple[str, str]
_Key = tuple[tuple[str, ...], Hashable]
_What = tuple[Subject, tuple[str, ...]]

_SHIFTS = (0.25, 0.5, 1.0, 2.0)
_MIN_RATIO = 0.25
_BASELINE = 8
_MIN_GROUPS = 3
_SIGMA_WEIGHT = 6.0
_PRIOR_SIGMA = 0.15
_RATE = 1.0 / 16.0
# A path whose evidence is below this share of the limit speaks for all that it runs through.
_HEALTHY = 0.1
_CLEAR = 0.25
# Groups times shapes that are followed at once.
_ROOM, _UNUSED_STEPS = 1024, 50


@dataclass(frozen=True, slots=True)
class Transfer:
    """One group's collectives, or one pair's sends, of one shape in one step.

    Args:
        hosts: in the order of the ring, each once; two (from, to) for sends.
        shape: transfers with equal shapes (operation, bytes, hosts) are comparable.
        seconds: mean time from the last arrival to the end.
        ring: the last host sends to the first one too.
        exit_s: of each host how long after the middle of the group it left; () = not known.
    """

    hosts: tuple[str, ...]
    shape: Hashable
    seconds: float
    ring: bool = True
    exit_s: tuple[float, ...] = ()

    @property
    def edges(self) -> tuple[Edge, ...]:
        """What it runs over; a ring on one host runs over none."""
        pairs = list(zip(self.hosts, self.hosts[1:], strict=False))
        if self.ring and len(self.hosts) > 1:
            pairs.append((self.hosts[-1], self.hosts[0]))
        return tuple(pairs)


@dataclass(slots=True)
class _Path:
    """What is known of one group and shape; place: in the scorer's test."""

    transfer: Transfer
    place: int
    last_step: int = 0
    seen: int = 0
    baseline_s: float = 0.0
    variance: float = _PRIOR_SIGMA**2
    ratio: float = 0.0
    cost_s: float = 0.0
    exits: list[float] = field(default_factory=list)


class LinkScorer:
    """Call update() after each step with its transfers; it says which links are slow now.

    A transfer is held against the same shape elsewhere (three groups at least) and else against
    its own first eight steps: of a job with one group only, what was slow from the start is seen
    by a test before the job, not here.

    Args:
        limit: log-likelihood at which a path counts as slow.
    """

    def __init__(self, limit: float = 12.0) -> None:
        self._limit = limit
        # One test for all paths, with room for more: one at a time takes ten times as long.
        self._test = ShiftTest(_SHIFTS, (_ROOM,), limit)
        self._log_likelihood = self._test.log_likelihood.max(axis=0)
        self._paths: dict[_Key, _Path] = {}
        self._slow: set[_Key] = set()

    def update(self, step: int, transfers: Sequence[Transfer]) -> tuple[Verdict, ...]:
        """Take one step, and say which links or hosts are slow after it, costliest first."""
        if not transfers and not self._paths:
            return ()
        shapes: dict[Hashable, list[float]] = {}
        for transfer in transfers:
            shapes.setdefault(transfer.shape, []).append(transfer.seconds)
        room = len(self._log_likelihood)
        slowdown, sigma = np.full(room, np.nan), np.ones(room)
        taken: list[tuple[_Path, Transfer, float]] = []
        for transfer in transfers:
            path = self._path(step, transfer) if transfer.edges else None
            if path is None:
                continue
            usual_s = _usual(path, transfer, shapes[transfer.shape])
            if usual_s <= 0.0:
                continue
            ratio = transfer.seconds / usual_s - 1.0
            slowdown[path.place] = min(ratio, 3.0)
            sigma[path.place] = max(0.02, math.sqrt(path.variance))
            taken.append((path, transfer, usual_s))
        self._test.update(step, slowdown, sigma)
        self._log_likelihood = self._test.log_likelihood.max(axis=0)
        for path, transfer, usual_s in taken:
            _learn(path, transfer, usual_s, bool(self._log_likelihood[path.place] > 0.0))
        slow = {}
        for key, path in self._paths.items():
            # Once slow, a path stays so until most of the evidence has gone.
            share = _CLEAR if key in self._slow else 1.0
            if self._log_likelihood[path.place] >= share * self._limit:
                slow[key] = path
        self._slow = set(slow)
        return self._explain(slow)

    def rows(self) -> list[LinkRow]:
        """What is known of each edge, worst first."""
        worst: dict[Edge, tuple[float, float, float]] = {}
        for path in self._paths.values():
            figures = (
                float(self._log_likelihood[path.place]) / self._limit,
                1.0 + path.ratio,
                path.cost_s,
            )
            for edge in path.transfer.edges:
                worst[edge] = max(worst.get(edge, (0.0, 0.0, 0.0)), figures)
        rows = [
            LinkRow(*edge, ratio, share, lost_s) for edge, (share, ratio, lost_s) in worst.items()
        ]
        return sorted(rows, key=worst_first)

    def _path(self, step: int, transfer: Transfer) -> _Path | None:
        """What is known of a transfer; None where there are too many to follow."""
        key = (transfer.hosts, transfer.shape)
        path = self._paths.get(key)
        if path is None:
            if len(self._paths) == _ROOM:
                self._forget(step)
            if len(self._paths) == _ROOM:
                return None
            used = {other.place for other in self._paths.values()}
            place = next(place for place in range(_ROOM) if place not in used)
            path = self._paths[key] = _Path(transfer, place, exits=[0.0] * len(transfer.hosts))
        path.last_step = step
        path.seen += 1
        return path

    def _forget(self, step: int) -> None:
        """Drop paths that are not used any more: sizes that change would never end."""
        for key, path in list(self._paths.items()):
            if step - path.last_step > _UNUSED_STEPS:
                which = np.zeros(_ROOM, dtype=bool)
                which[path.place] = True
                self._test.forget(which)
                del self._paths[key]

    def _explain(self, slow: Mapping[_Key, _Path]) -> tuple[Verdict, ...]:
        """The fewest links or hosts that all slow paths share and no healthy one uses."""
        fit = [
            p
            for p in self._paths.values()
            if self._log_likelihood[p.place] < _HEALTHY * self._limit
        ]
        good = {edge for path in fit if path.seen > _BASELINE for edge in path.transfer.edges}
        left = [path for path in slow.values() if path.ratio >= _MIN_RATIO]
        verdicts: list[Verdict] = []
        while left:
            covers: dict[_What, list[_Path]] = {}
            for path in left:
                open_edges = [e for e in path.transfer.edges if e[0] != e[1] and e not in good]
                for edge in open_edges or list(path.transfer.edges):
                    covers.setdefault((Subject.LINK, edge), []).append(path)
                for host in sorted({end for edge in open_edges for end in edge}):
                    covers.setdefault((Subject.HOST, (host,)), []).append(path)
            # Both ends of what is slow are explained by less: a link before a host.
            most = max(len(paths) for paths in covers.values())
            tied = [key for key, paths in covers.items() if len(paths) == most]
            links = [key for key in tied if key[0] is Subject.LINK]
            chosen, sure = _by_exits(links or tied, covers[tied[0]])
            verdicts.append(self._verdict(chosen, covers[chosen], sure, len(tied)))
            left = [path for path in left if path not in covers[chosen]]
        return tuple(sorted(verdicts, key=lambda verdict: -verdict.cost_s))

    def _verdict(self, what: _What, paths: Sequence[_Path], sure: float, tied: int) -> Verdict:
        subject, ends = what
        worst = max(paths, key=lambda path: path.ratio)
        onsets = self._test.best()[1]
        onset = min(int(onsets[path.place]) for path in paths)
        reasons = [
            f"transfers of {len(paths)} group(s) over it take {worst.ratio:.0%} longer after the "
            "last arrival"
        ]
        if tied > 1:
            reasons.append(f"{tied} links and hosts share these transfers")
        if sure > 0.5 and tied > 1:
            reasons.append(f"{ends[-1]} leaves last and {ends[0]} early, as behind a slow edge")
        alone = 1.0 if tied == 1 else max(sure, 1.0 / tied)
        cost_s = max(path.cost_s for path in paths)
        return Verdict(
            subject, Cause.NETWORK, worst.ratio, 0.95 * alone, onset, cost_s, tuple(reasons),
            ends=ends,
        )  # fmt: skip


def _usual(path: _Path, transfer: Transfer, alike_s: Sequence[float]) -> float:
    """What the transfer is held against, s; 0 = nothing yet."""
    if len(alike_s) >= _MIN_GROUPS:
        return float(np.median(alike_s))
    if path.seen <= _BASELINE:
        path.baseline_s += (transfer.seconds - path.baseline_s) / path.seen
        return 0.0
    return path.baseline_s


def _learn(path: _Path, transfer: Transfer, usual_s: float, suspected: bool) -> None:
    ratio = transfer.seconds / usual_s - 1.0
    rate = max(_RATE, 1.0 / path.seen)
    # The spread of a path is learnt around its own mean, so that a slow one stays precise.
    off = min(abs(ratio - path.ratio), 3.0 * max(0.02, math.sqrt(path.variance)))
    weight = 1.0 / (min(path.seen, 1.0 / _RATE) + _SIGMA_WEIGHT)
    path.variance += weight * (off**2 - path.variance)
    path.ratio += max(0.25, rate) * (ratio - path.ratio)
    path.cost_s = path.cost_s + max(0.0, transfer.seconds - usual_s) if suspected else 0.0
    for place, left in enumerate(transfer.exit_s):
        path.exits[place] += rate * (left - path.exits[place])


def _by_exits(tied: Sequence[_What], paths: Sequence[_Path]) -> tuple[_What, float]:
    """Of what the transfers cannot tell apart, where the times of leaving jump up most."""
    steps_s: dict[Edge, float] = {}
    for path in paths:
        place = {host: index for index, host in enumerate(path.transfer.hosts)}
        for source, target in path.transfer.edges:
            jump_s = path.exits[place[target]] - path.exits[place[source]]
            steps_s[source, target] = steps_s.get((source, target), 0.0) + jump_s
    jumps = sorted(
        (
            (steps_s.get((ends[0], ends[1]), 0.0), ends)
            for kind, ends in tied
            if kind is Subject.LINK
        ),
        reverse=True,
    )
    if len(jumps) > 1 and jumps[0][0] > 0.0:
        return (Subject.LINK, jumps[0][1]), 0.7 if jumps[0][0] > 2.0 * jumps[1][0] else 0.4
    return min(tied, key=lambda key: (key[0], key[1])), 1.0 / len(tied)
