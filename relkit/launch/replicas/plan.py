"""Who keeps whose copies, which step is copied next, and which round a job resumes from (pure)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from relkit.ranks import RankSet

# A loop that is late by so many periods pauses: it may be evaluating, or hang.
_PAUSE_PERIODS = 4
_MIN_PERIOD_S = 1e-3


@dataclass(frozen=True, slots=True)
class Held:
    """A whole copy of a rank's state on a node.

    Args:
        node: that holds it; rank: whose; round_id: that it was copied in; step: of the loop.
    """

    node: int
    rank: int
    round_id: str
    step: int


@dataclass(frozen=True, slots=True)
class Resume:
    """What a job resumes from.

    Args:
        step: of the loop; round_id: of the copies.
        sources: rank -> the node whose copy is taken.
    """

    step: int
    round_id: str
    sources: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How a node's ranks save.

    Args:
        newest: step that all of them have whole; stride: steps from one save to the next, above 0.
        period_s: time from one save to the next; saved_unix_s: time of the newest one.
    """

    newest: int
    stride: int
    period_s: float
    saved_unix_s: float


def targets(hosts: Sequence[str], node: int, count: int) -> tuple[int, ...]:
    """The nodes that keep replicas of a node's ranks: the next ones in order, on other hosts.

    Args:
        hosts: of all nodes, in their order; node: whose; count: how many replicas.
    """
    chosen: list[int] = []
    taken = {hosts[node]}
    for distance in range(1, len(hosts)):
        other = (node + distance) % len(hosts)
        if len(chosen) < count and hosts[other] not in taken:
            chosen.append(other)
            taken.add(hosts[other])
    return tuple(chosen)


def sources(hosts: Sequence[str], node: int, count: int) -> tuple[int, ...]:
    """The nodes whose replicas a node keeps."""
    return tuple(n for n in range(len(hosts)) if node in targets(hosts, n, count))


def next_step(rhythm: Rhythm, now_unix_s: float, margin_s: float) -> int:
    """The step to copy next: one that no rank overwrites before all launchers know of it.

    The newest step where the next save is far away, or the loop pauses; else one that is yet to be
    saved.

    Args:
        margin_s: how long a note to all launchers takes.
    """
    period_s, since_s = max(rhythm.period_s, _MIN_PERIOD_S), now_unix_s - rhythm.saved_unix_s
    if since_s + margin_s < period_s or since_s > _PAUSE_PERIODS * period_s + margin_s:
        return rhythm.newest
    # The next save may be overdue, and come now.
    ahead_s = min(max(0.0, since_s), period_s) + margin_s
    return rhythm.newest + rhythm.stride * math.ceil(ahead_s / period_s)


def newest_round(
    held: Iterable[Held],
    world_size: int,
    runs: Mapping[int, int],
    refused: Collection[Held] = (),
) -> Resume | None:
    """The newest round of which every rank has a copy somewhere; None where there is none.

    Args:
        held: by all nodes; world_size: ranks of the job.
        runs: rank -> the node that runs it now; its own copy is taken first.
        refused: copies that turned out to be of no use.
    """
    rounds: dict[tuple[int, str], dict[int, set[int]]] = {}
    for copy in held:
        if copy not in refused and 0 <= copy.rank < world_size:
            by_rank = rounds.setdefault((copy.step, copy.round_id), {})
            by_rank.setdefault(copy.rank, set()).add(copy.node)
    whole = [key for key, by_rank in rounds.items() if len(by_rank) == world_size]
    if not whole:
        return None
    step, round_id = max(whole)
    by_rank = rounds[step, round_id]
    chosen = {
        rank: runs[rank] if runs.get(rank) in nodes else min(nodes)
        for rank, nodes in sorted(by_rank.items())
    }
    return Resume(step, round_id, chosen)


def newest_own(steps: Mapping[int, Collection[int]], world_size: int) -> int:
    """The newest step that all ranks have in slots of their own; -1 where there is none.

    Args:
        steps: by rank.
    """
    common = set.intersection(*(set(steps.get(rank, ())) for rank in range(world_size)))
    return max(common, default=-1)


def words(resume: Resume, runs: Mapping[int, int], names: Mapping[int, str]) -> str:
    """Where a step comes from: "from memory (rank 0) and from replicas on h1 (rank 1)".

    Args:
        runs: rank -> the node that runs it; names: of the nodes.
    """
    by_node: dict[int, list[int]] = {}
    own = []
    for rank, node in resume.sources.items():
        if runs[rank] == node:
            own.append(rank)
        else:
            by_node.setdefault(node, []).append(rank)
    told = [f"from memory ({_ranks(own)})"] if own else []
    told += [f"from replicas on {names[n]} ({_ranks(r)})" for n, r in sorted(by_node.items())]
    return " and ".join((", ".join(told[:-1]), told[-1])) if len(told) > 1 else told[0]


def _ranks(numbers: Sequence[int]) -> str:
    kind = "rank" if len(numbers) == 1 else "ranks"
    return f"{kind} {RankSet.of(numbers).fold()}"
