"""How far the clocks of a job's hosts are apart, from the collectives that their ranks share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np

from relkit.straggler.model import Floats, Ints
from relkit.straggler.score.clocks import estimate_offsets
from relkit.straggler.score.matched_collectives import MatchedCollectives
from relkit.straggler.step_record import SYNCHRONISING

# Of each group the quickest collectives, so many, as ranks leave those together; and none that is
# older, as clocks drift apart.
_MAX_COLLECTIVES = 64
_AGE_S = 180.0
_FEW = 16
_GROUPS_PER_STEP = 16
_COLLECTIVES_PER_STEP = 4
_EVERY = 8
_ESTIMATE_EVERY = 32


@dataclass(frozen=True, slots=True)
class _Apart:
    """Clocks of a group's hosts against the first of them."""

    hosts: list[int]
    offset_s: list[float]
    sigma_s: list[float]


@dataclass(slots=True)
class _Group:
    """A group that connects hosts, and (when, how quick, starts, ends) of its collectives."""

    ranks: tuple[int, ...]
    met: list[tuple[float, float, Floats, Floats]] = field(default_factory=list)
    apart: _Apart | None = None
    due_step: int = 0
    wait_steps: int = 1


class HostClocks:
    """Call update() with the matched collectives of each step; offsets follow some steps later.

    Hosts that share no group are connected through hosts that do. Where nothing connects them,
    each part of the job has a clock of its own: nobody there waits for the others.
    """

    def __init__(self) -> None:
        self._hosts: tuple[str, ...] = ()
        self._groups: dict[int, _Group] = {}
        self._whole = False
        self._steps = 0
        # By host, in the order of _hosts: (ahead of the first host of its part by, error), s.
        self._known: dict[int, tuple[float, float]] = {}
        self._first_part: set[int] = set()

    def offset_s(self, host_of: Sequence[str]) -> Floats:
        """By rank, what its clock is ahead, s; 0 where nothing is known.

        Args:
            host_of: by rank.
        """
        by_host = {host: self._known.get(at, (0.0, 0.0))[0] for at, host in enumerate(self._hosts)}
        return np.array([by_host.get(host, 0.0) for host in host_of])

    def table(self) -> dict[str, tuple[float, float]]:
        """Host -> (ahead of the first host by, standard error), s; of those that are connected."""
        return {
            host: self._known[at]
            for at, host in enumerate(self._hosts)
            if at in self._first_part and math.isfinite(self._known[at][1])
        }

    def update(self, matched: MatchedCollectives, host_of: Sequence[str]) -> None:
        """Take the matched collectives of one step, each rank by its own host's clock.

        Args:
            host_of: by rank.
        """
        hosts = tuple(dict.fromkeys(host_of))
        if hosts != self._hosts:
            self._hosts, self._groups, self._known = hosts, {}, {}
            self._whole, self._steps = False, 0
        if len(hosts) < 2 or not len(matched.first):
            return
        number = {host: at for at, host in enumerate(hosts)}
        at_host = np.array([number[host] for host in host_of], dtype=np.int64)
        usable = np.flatnonzero(np.isin(matched.operation, SYNCHRONISING))
        if not self._whole and self._steps % _EVERY == 0:
            self._choose(matched, usable, at_host)
        self._note(matched, usable)
        self._estimate(at_host)
        self._steps += 1

    def _choose(self, matched: MatchedCollectives, usable: Ints, at_host: Ints) -> None:
        """Add groups until they connect as many hosts as can be, large ones first."""
        part = list(range(len(self._hosts)))

        def root(host: int) -> int:
            while part[host] != host:
                host = part[host]
            return host

        def join(ranks: tuple[int, ...]) -> bool:
            roots = {root(int(host)) for host in at_host[list(ranks)]}
            for other in roots:
                part[other] = min(roots)
            return len(roots) > 1

        for group in self._groups.values():
            join(group.ranks)
        groups, firsts = np.unique(matched.group[usable], return_index=True)
        places = usable[firsts]
        for order in np.argsort(-matched.size[places], kind="stable"):
            begin, size = int(matched.first[places[order]]), int(matched.size[places[order]])
            ranks = tuple(matched.rank[begin : begin + size].tolist())
            if join(ranks):
                self._groups[int(groups[order])] = _Group(ranks)
        self._whole = len({root(host) for host in range(len(self._hosts))}) == 1

    def _note(self, matched: MatchedCollectives, usable: Ints) -> None:
        numbers = list(self._groups)
        turn = (self._steps * _GROUPS_PER_STEP) % max(1, len(numbers))
        by_group = matched.group[usable]
        for number in (numbers[turn:] + numbers[:turn])[:_GROUPS_PER_STEP]:
            group = self._groups[number]
            # MatchedCollectives are sorted by group.
            low, high = np.searchsorted(by_group, (number, number + 1))
            for at in usable[low : min(high, low + _COLLECTIVES_PER_STEP)]:
                rows = slice(int(matched.first[at]), int(matched.first[at] + matched.size[at]))
                if tuple(matched.rank[rows].tolist()) != group.ranks:
                    continue
                start_s, end_s = matched.start_s[rows], matched.end_s[rows]
                shortest_s = float((end_s - start_s).min())
                group.met.append((matched.origin_s, shortest_s, start_s, end_s))
            if len(group.met) > _FEW:
                group.met = [met for met in group.met if matched.origin_s - met[0] <= _AGE_S]
            group.met.sort(key=itemgetter(1))
            del group.met[_MAX_COLLECTIVES:]

    def _estimate(self, at_host: Ints) -> None:
        news = False
        for place, group in enumerate(self._groups.values()):
            if not group.met or self._steps < group.due_step:
                continue
            # More and more seldom, and in turn, so that no step takes much longer than another.
            group.wait_steps = min(2 * group.wait_steps, _ESTIMATE_EVERY)
            group.due_step = self._steps + group.wait_steps + place % group.wait_steps
            hosts, local = np.unique(at_host[list(group.ranks)], return_inverse=True)
            starts, ends = (np.stack([met[at] for met in group.met]) for at in (2, 3))
            offsets = estimate_offsets(starts, ends, local.astype(np.int64))
            group.apart = _Apart(
                hosts.tolist(), offsets.offset_s.tolist(), offsets.sigma_s.tolist()
            )
            news = True
        if news:
            self._put_together([g.apart for g in self._groups.values() if g.apart is not None])

    def _put_together(self, measured: Sequence[_Apart]) -> None:
        known: dict[int, tuple[float, float]] = {}
        for first in range(len(self._hosts)):
            if first in known:
                continue
            known[first] = (0.0, 0.0)
            before = -1
            while len(known) != before:
                before = len(known)
                for apart in measured:
                    _connect(known, apart)
            if first == 0:
                self._first_part = set(known)
        self._known = known


def _connect(known: dict[int, tuple[float, float]], apart: _Apart) -> None:
    """Derive the clocks of a group's hosts from the best known one among them."""
    hosts, offset_s, sigma_s = apart.hosts, apart.offset_s, apart.sigma_s
    known_places = [at for at, host in enumerate(hosts) if host in known]
    if not known_places or len(known_places) == len(hosts):
        return
    base = min(known_places, key=lambda at: math.hypot(known[hosts[at]][1], sigma_s[at]))
    base_s, base_sigma_s = known[hosts[base]]
    for at, host in enumerate(hosts):
        if host not in known and math.isfinite(offset_s[at] - offset_s[base]):
            sigma = math.hypot(base_sigma_s, sigma_s[at], sigma_s[base])
            known[host] = (base_s + offset_s[at] - offset_s[base], sigma)
