"""torch's state of a rendezvous, as far as a SpareRendezvous reads it and changes it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    _Action,
    _remove_participant_epilogue,
)

from relkit.launch.spares.join_step import Rendezvous
from relkit.launch.spares.membership import Membership

# An attribute that torch keeps and does not read: the Membership, as text.
ATTRIBUTE = "relkit_membership"


def keys_of(nodes: Iterable[object]) -> frozenset[str]:
    """Of torch's nodes: as a Membership has them."""
    return frozenset(repr(node) for node in nodes)


def present_in(state: Any) -> frozenset[str]:  # noqa: ANN401
    """All who are in the meeting, or wait."""
    return keys_of([*state.participants, *state.wait_list, *state.redundancy_list])


def heartbeats_of(state: Any) -> dict[str, object]:  # noqa: ANN401
    """The newest of each node that has one; it carries a time of that node's clock."""
    return {repr(node): at for node, at in state.last_heartbeats.items()}


def off_the_lists(context: Any) -> _Action | None:  # noqa: ANN401
    """What takes this node off the list that it is on."""
    if context.node in context.state.participants:
        return _Action.REMOVE_FROM_PARTICIPANTS
    if context.node in context.state.wait_list:
        return _Action.REMOVE_FROM_WAIT_LIST
    if context.node in context.state.redundancy_list:
        return _Action.REMOVE_FROM_REDUNDANCY_LIST
    return None


def take_out(context: Any, node: Any) -> None:  # noqa: ANN401
    """Take a node that is dead out of the state, as torch does it after its own limit."""
    state = context.state
    state.last_heartbeats.pop(node, None)
    state.wait_list.discard(node)
    state.redundancy_list.discard(node)
    if state.participants.pop(node, None) is not None:
        _remove_participant_epilogue(state, context.settings)


def seen(context: Any, unit: int) -> Rendezvous:  # noqa: ANN401
    """What this node sees.

    Args:
        context: of one of torch's operations; unit: of --node-unit.
    """
    state, settings = context.state, context.settings
    return Rendezvous(
        node=repr(context.node),
        is_complete=state.complete,
        participants=keys_of(state.participants),
        waiting=keys_of(state.wait_list),
        spares=keys_of(state.redundancy_list),
        min_nodes=settings.min_nodes,
        max_nodes=settings.max_nodes,
        unit=unit,
    )


def leave_out(
    state: Any,  # noqa: ANN401
    left_over: Collection[str],
    membership: Membership,
    unit: int,
) -> Membership:
    """Have nodes wait that have come to a meeting that is about to take place.

    Args:
        left_over: their keys; unit: of --node-unit, for people.

    Returns:
        the membership after that meeting.
    """
    nodes = [node for node in state.participants if repr(node) in left_over]
    left = len(state.participants) - len(nodes)
    for node in nodes:
        del state.participants[node]
        state.redundancy_list.add(node)
        why = f"it waits: {left} nodes are a multiple of --node-unit {unit}"
        membership = membership.without(repr(node), why)
    return membership.met(state.round, keys_of(state.participants), present_in(state))
