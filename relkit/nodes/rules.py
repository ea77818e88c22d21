"""What may be done to which nodes: a tenth of the fleet a day, back only after a test; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from relkit.findings import Status
from relkit.history.model import Event, What
from relkit.nodes.model import NodeState, Refused

DAY_S = 86400.0
SHARE = 0.1


def most_a_day(nodes: int) -> int:
    """How many nodes of a fleet may be taken out in a day: a tenth, and one of a small fleet."""
    return max(1, int(nodes * SHARE))


def taken_out_today(
    states: Sequence[NodeState], events: Iterable[Event], now_s: float
) -> frozenset[str]:
    """The nodes that relkit has taken out within a day, here or from elsewhere, and not undone.

    Args:
        states: of the cluster.
        events: of this host's history, oldest first.
        now_s: Unix time.
    """
    begun_s = now_s - DAY_S
    known = {s.name for s in states if s.finding and s.since_unix_s >= begun_s}
    for event in events:
        if event.at_unix_s >= begun_s and event.what is What.DRAIN:
            known |= set(event.nodes)
        elif event.what is What.UNDO:
            known -= set(event.nodes)
    return frozenset(known & {s.name for s in states})


def check_drain(
    states: Sequence[NodeState], wanted: Collection[str], today: Collection[str]
) -> None:
    """Refuse a drain as a whole.

    Args:
        states: of the cluster; wanted: names; today: of taken_out_today.

    Raises:
        Refused: a node is unknown or out already, or too many would be out.
    """
    by_name = _known(states, wanted)
    for name in wanted:
        if by_name[name].is_out:
            raise Refused(f"{name} is out already: {by_name[name].reason or 'no reason is given'}")
    most, count = most_a_day(len(states)), len(set(wanted) | set(today))
    if count > most:
        raise Refused(
            f"that would make {count} nodes in a day, of {len(states)}; relkit takes out {most} at "
            f"most, as more faults at once are rarely the nodes' own ({_listed(today)} since "
            "yesterday)",
            next_step="Look for what they have in common (relkit netcheck --mode groups), or drain "
            "them with the cluster's own tool.",
        )


def check_undrain(
    states: Sequence[NodeState], wanted: Collection[str], events: Sequence[Event]
) -> None:
    """Refuse to put nodes back that were not tested since.

    Args:
        states: of the cluster; wanted: names; events: of this host's history.

    Raises:
        Refused: one is unknown, in use, was taken out by others, or has passed no test since.
    """
    by_name = _known(states, wanted)
    for name in wanted:
        state = by_name[name]
        if not state.is_out:
            raise Refused(f"{name} is not out")
        if not state.finding:
            raise Refused(
                f"{name} was not taken out by relkit: {state.reason or 'no reason is given'}",
                next_step="Ask who has, and use the cluster's own tool.",
            )
        if not has_passed(state, events):
            raise Refused(
                f"{name} is out for {state.finding}, and has passed no test of that since",
                next_step=_test_for(state),
            )


def has_passed(state: NodeState, events: Iterable[Event]) -> bool:
    """The newest test of this node by the command of its finding was good, and came after it."""
    family = family_of(state.finding)
    tests = [
        event
        for event in events
        if event.what is What.RETEST
        and event.nodes == (state.name,)
        and family_of(event.finding) == family
        and event.at_unix_s > state.since_unix_s
    ]
    newest = max(tests, key=lambda event: event.at_unix_s, default=None)
    return newest is not None and newest.status == Status.OK.value


def family_of(finding: str) -> str:
    """RK-NET-002 -> NET."""
    return finding.removeprefix("RK-").rpartition("-")[0]


def to_undo(states: Sequence[NodeState], events: Sequence[Event]) -> tuple[str, ...]:
    """The nodes of this host's last drain that are still out for it.

    Raises:
        Refused: there is none.
    """
    by_name = {state.name: state for state in states}
    undone = {name for event in events if event.what is What.UNDO for name in event.nodes}
    for event in reversed(events):
        if event.what is What.DRAIN:
            names = [n for n in event.nodes if n in by_name and by_name[n].finding == event.finding]
            if names and not undone & set(names):
                return tuple(names)
    raise Refused("no node is out that relkit has taken out from this host")


def _known(states: Sequence[NodeState], wanted: Collection[str]) -> Mapping[str, NodeState]:
    by_name = {state.name: state for state in states}
    missing = [name for name in wanted if name not in by_name]
    if missing:
        raise Refused(f"no node of this cluster: {_listed(missing)}")
    return by_name


def _test_for(state: NodeState) -> str:
    if family_of(state.finding) == "LNK":
        return f"Run `relkit slurm check-node` on {state.name}: it puts the node back if it passes."
    return f"Test it: relkit nodes retest {state.name} --nodes NODES"


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)[:8]) or "none"
