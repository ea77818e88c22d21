"""How far the clocks of hosts are apart at most, by what must have come before what (pure).

Nobody leaves an all-reduce before the last one has come. So of each pair of hosts it is known that
what one noted came no later than what the other noted, each by its own clock: a bound on the
difference of the two clocks. Bounds of all pairs together are a system of difference constraints,
whose shortest paths are the tightest bounds that follow. Where bounds contradict each other, or
where one side is open, nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Two quartz clocks that nobody disciplines drift apart by up to so much.
DRIFT = 50e-6
MIN_MATCHES = 8


@dataclass(frozen=True, slots=True, eq=False)
class SharedOperation:
    """An operation of ranks on several hosts: what was sent was there before it was heard.

    Args:
        hosts: their numbers, each once.
        sent_ns: of each host, when the last of its ranks began to send, by its own clock; -1 = it
            sends nothing.
        heard_ns: when the first of its ranks knew that all had been sent; -1 = it hears nothing.
    """

    hosts: Ints
    sent_ns: Ints
    heard_ns: Ints

    def seen_ns(self) -> Ints:
        """About when it was, by each host's own clock."""
        return np.where(self.heard_ns >= 0, self.heard_ns, self.sent_ns)


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """How one host's clock stands to that of the first host.

    Args:
        offset_ns: subtract from its times to get the first host's; the middle of what is possible.
        error_ns: it is wrong by at most so much; infinite where nothing bounds it.
        matches: operations that it shared with other hosts.
        problem: why it cannot be used, "" where it can.
    """

    offset_ns: int
    error_ns: float
    matches: int
    problem: str = ""


def clock_offsets(
    hosts: int, operations: Sequence[SharedOperation], max_error_ns: float
) -> tuple[ClockOffset, ...]:
    """The clock of each host against that of host 0.

    Args:
        hosts: how many; operations: that some of them shared, in any order.
        max_error_ns: a clock that is not known better than this cannot be used.
    """
    away_ns = _away_from_middle_ns(hosts, operations)
    ahead = np.full((hosts, hosts), np.inf)
    np.fill_diagonal(ahead, 0.0)
    matches = np.zeros(hosts, np.int64)
    for operation, away in zip(operations, away_ns, strict=True):
        place = np.ix_(operation.hosts, operation.hosts)
        ahead[place] = np.minimum(ahead[place], _bounds(operation) + DRIFT * away)
        matches[operation.hosts] += 1
    closed = _closure(ahead)
    drift_ns = DRIFT * max(away_ns, default=0.0)
    return (
        ClockOffset(0, 0.0, int(matches[0])),
        *(
            _offset(closed, host, int(matches[host]), drift_ns, max_error_ns)
            for host in range(1, hosts)
        ),
    )


def _bounds(operation: SharedOperation) -> Floats:
    """[a, b]: b's clock is ahead of a's by at most so much."""
    sent, heard = operation.sent_ns, operation.heard_ns
    ahead: Floats = (heard[None, :] - sent[:, None]).astype(np.float64)
    ahead[sent < 0, :] = np.inf
    ahead[:, heard < 0] = np.inf
    np.fill_diagonal(ahead, 0.0)
    return ahead


def _offset(
    closed: Floats, host: int, matches: int, drift_ns: float, max_error_ns: float
) -> ClockOffset:
    most_ns, least_ns = float(closed[0, host]), -float(closed[host, 0])
    if closed[host, host] < 0.0 or closed[0, 0] < 0.0:
        problem = "what is known of it contradicts itself: a clock was set meanwhile"
        return ClockOffset(0, float("inf"), matches, problem)
    if matches < MIN_MATCHES:
        problem = f"it shared {matches} operations with other hosts, fewer than {MIN_MATCHES}"
        return ClockOffset(0, float("inf"), matches, problem)
    if not np.isfinite(most_ns - least_ns):
        problem = "what it did is bound to the others in one direction only, or not at all"
        return ClockOffset(0, float("inf"), matches, problem)
    error_ns = (most_ns - least_ns) / 2 + drift_ns
    problem = ""
    if error_ns > max_error_ns:
        problem = (
            f"its clock is known to within {error_ns / 1e3:.0f} us only, and "
            f"{max_error_ns / 1e3:.0f} us are allowed"
        )
    return ClockOffset(round((most_ns + least_ns) / 2), error_ns, matches, problem)


def _away_from_middle_ns(hosts: int, operations: Sequence[SharedOperation]) -> list[float]:
    """How long before or after the middle of them each operation was: so long clocks can drift.

    To that end clocks are put on each other roughly: what hosts saw of one operation was at about
    the same time.
    """
    rough: list[int | None] = [None] * hosts
    waiting = list(operations)
    while waiting:
        known = [each for each in waiting if any(rough[h] is not None for h in each.hosts)]
        # Another part of the job, which shares nothing with what is known, has its own middle.
        for each in known or waiting[:1]:
            _put_on(rough, each)
        if known:
            waiting = [e for e in waiting if any(rough[h] is None for h in e.hosts)]
    times = [
        float(np.median([t - (rough[h] or 0) for h, t in zip(e.hosts, e.seen_ns(), strict=True)]))
        for e in operations
    ]
    middle = (min(times) + max(times)) / 2 if times else 0.0
    return [abs(time - middle) for time in times]


def _put_on(rough: list[int | None], operation: SharedOperation) -> None:
    seen = [int(each) for each in operation.seen_ns()]
    hosts = [int(each) for each in operation.hosts]
    first = next((at for at, host in enumerate(hosts) if rough[host] is not None), None)
    # The first of a part of the job has the clock that it has.
    base = 0 if first is None else seen[first] - (rough[hosts[first]] or 0)
    base = seen[0] if first is None else base
    for host, time in zip(hosts, seen, strict=True):
        if rough[host] is None:
            rough[host] = time - base


def _closure(ahead: Floats) -> Floats:
    """The tightest bounds that follow (Floyd and Warshall); negative on the diagonal = none can."""
    closed = ahead.copy()
    for middle in range(len(closed)):
        through = closed[:, middle, None] + closed[None, middle, :]
        np.minimum(closed, through, out=closed)
    return closed
