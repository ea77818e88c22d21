"""Who waits for whom: ranks wait in operations, operations wait for ranks that are not there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from relkit.hang.activity import Activity
from relkit.hang.groups import Group, GroupKey
from relkit.hang.model import RankView
from relkit.hang.transfers import Transfer, transfers_of
from relkit.hang.words import of_ranks, torch_name
from relkit.hook.model import Op, OpKind
from relkit.ranks import RankSet


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing that ranks wait in.

    Args:
        what: `all_reduce #41 of the default group`.
        waiters: the ranks in it.
        missing: the ranks it waits for, as far as the recorders show.
        exact: `missing` follows from sequence numbers; else the peers are unknown, and it is
            every rank that is not waiting itself.
        group: the group, for a collective; seq: its number there, -1 for none.
        transfer: for a send or receive with a number, what is known of it.
    """

    what: str
    waiters: RankSet
    missing: RankSet
    exact: bool
    group: Group | None = None
    seq: int = -1
    transfer: Transfer | None = None


def waits_of(
    views: Mapping[int, RankView],
    activities: Mapping[int, Activity],
    groups: Sequence[Group],
) -> tuple[Wait, ...]:
    """All waits of a job, in a fixed order. A rank that is in none of them is on the host."""
    exact: dict[tuple[GroupKey, int, str], tuple[Group, Op, list[int]]] = {}
    for group in groups:
        for rank in sorted(group.members):
            for op in group.members[rank].stuck:
                if op.failed and views[rank].alive and not group.behind(op.seq):
                    continue  # an old error: it has gone on since, and waits for nobody
                entry = exact.setdefault((group.key, op.seq, op.name), (group, op, []))
                entry[2].append(rank)
    recorded = {rank for _, _, ranks in exact.values() for rank in ranks}
    transfers = [t for t in transfers_of(views, groups) if views[t.rank].alive]
    recorded |= {each.rank for each in transfers}
    loose = {r: what for r in views if r not in recorded and (what := _unnumbered(views[r]))}
    by_stack = {
        rank: f"{activities[rank].phrase.removeprefix('waiting in ')}, as its stack shows"
        for rank, view in views.items()
        if view.alive
        and rank not in recorded
        and rank not in loose
        and activities[rank].waits_for_peers
    }
    everyone = RankSet.of(views)
    host = everyone - RankSet.of([*recorded, *loose, *by_stack])
    if not host:
        # Some rank must be late. Stacks prove less than numbers: a rank whose recorder has no
        # operation in flight is not in one, whatever its stack looks like.
        by_stack = {r: what for r, what in by_stack.items() if views[r].hook is None}
        host = everyone - RankSet.of([*recorded, *loose, *by_stack])
    waiting = everyone - host
    # Peers that no number names: the ranks that run outside of any operation; those that have
    # ended only where none of these is left.
    running = RankSet.of(r for r in host if views[r].alive)
    anyone = running or RankSet.of(r for r in host if not views[r].absent_reason)
    unnumbered: dict[str, list[int]] = {}
    for rank, what in (loose | by_stack).items():
        unnumbered.setdefault(what, []).append(rank)
    # A rank with no recorder whose stack shows it inside communication cannot be called late.
    silent = RankSet.of(r for r in waiting if views[r].hook is None)
    waits = [
        Wait(group.call(op), RankSet.of(ranks), group.behind(op.seq) - silent, True, group, op.seq)
        for _, (group, op, ranks) in sorted(exact.items(), key=lambda item: item[0])
    ]
    for each in transfers:
        missing = RankSet.of([each.peer] if each.missing else [])
        waits.append(
            Wait(each.what, RankSet.of([each.rank]), missing - silent, True, transfer=each)
        )
    waits += [Wait(what, RankSet.of(r), anyone, False) for what, r in sorted(unnumbered.items())]
    return tuple(waits)


def _unnumbered(view: RankView) -> str:
    """An operation in flight that has no sequence number, so that its peers are not known."""
    if view.hook is not None and view.alive:
        for op in view.hook.in_flight:
            if op.kind is OpKind.P2P or (op.kind is OpKind.COLLECTIVE and op.seq < 0):
                return torch_name(op.name)
    return ""


def sinks(waits: Sequence[Wait], among: RankSet | None = None) -> tuple[RankSet, ...]:
    """Where the chains of waiting end: a single rank, or several that wait for one another.

    The strongly connected components with no way out of the graph rank -> wait -> missing rank.

    Args:
        among: ranks that may be missing; what is behind any other is not known. None for all.
    """
    edges: dict[int, list[int]] = {}
    # Waits are nodes of their own (negative numbers), so that a thousand ranks that wait for a
    # thousand others take two thousand edges and not a million.
    for number, wait in enumerate(waits, start=1):
        missing = wait.missing if among is None else wait.missing & among
        edges[-number] = list(missing)
        for rank in wait.waiters:
            edges.setdefault(rank, []).append(-number)
        for rank in missing:
            edges.setdefault(rank, [])
    components = _components(edges)
    of = {node: i for i, component in enumerate(components) for node in component}
    ends = []
    for i, component in enumerate(components):
        leaves = any(of[peer] != i for node in component for peer in edges[node])
        ranks = RankSet.of(node for node in component if node >= 0)
        if not leaves and ranks:
            ends.append(ranks)
    return tuple(sorted(ends, key=lambda ranks: ranks.intervals))


def _components(edges: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Tarjan's strongly connected components, with its own stack instead of recursion."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    components: list[list[int]] = []
    for root in sorted(edges):
        if root in order:
            continue
        work: list[tuple[int, Iterable[int]]] = [(root, iter(edges[root]))]
        order[root] = low[root] = len(order)
        path.append(root)
        on_path.add(root)
        while work:
            node, peers = work[-1]
            peer = next(iter(peers), None)
            if peer is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    component: list[int] = []
                    while not component or component[-1] != node:
                        component.append(path.pop())
                        on_path.discard(component[-1])
                    components.append(component)
            elif peer not in order:
                order[peer] = low[peer] = len(order)
                path.append(peer)
                on_path.add(peer)
                work.append((peer, iter(edges[peer])))
            elif peer in on_path:
                low[node] = min(low[node], order[peer])
    return components


def common_blocker(
    waits: Sequence[Wait], views: Mapping[int, RankView]
) -> tuple[int, tuple[str, ...]] | None:
    """The absent rank that is the only common member of groups that all wait for it, and why.

    That one file is missing proves nothing. That two groups, which share no other rank, wait in
    calls that all their other members have made, and nobody waits in anything else, does.

    Args:
        waits: all of the job; views: of all ranks.
    """
    absent = RankSet.of(rank for rank, view in views.items() if view.absent_reason)
    exact = [wait for wait in waits if wait.exact]
    suspects = {rank for wait in exact for rank in wait.missing & absent}
    if len(suspects) != 1 or len(exact) != len(waits):
        return None
    (suspect,) = suspects
    waiting = [wait for wait in exact if wait.missing == RankSet.of([suspect])]
    members = {_members(wait): wait for wait in reversed(waiting)}
    common = RankSet.of(views)
    for ranks in members:
        common &= ranks
    if len(members) < 2 or common != RankSet.of([suspect]):
        return None
    reasons = [
        f"{of_ranks(wait.waiters)} {'waits' if len(wait.waiters) == 1 else 'wait'} in {wait.what}"
        for wait in members.values()
    ]
    return suspect, (*reasons, "it is the only rank that all of these need")


def _members(wait: Wait) -> RankSet:
    return wait.waiters | wait.missing if wait.group is None else wait.group.ranks
