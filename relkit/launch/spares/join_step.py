"""What a node that wants to join the job does next (pure).

torch takes whoever comes first: after a fault a spare could take the place of a node that is only
a little late, with all that this one keeps in memory. Here the members of the job go first, and as
many spares step in as members are gone. The number of nodes is a multiple of --node-unit: nodes
step in together, and those that are left over wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from relkit.launch.spares.membership import Membership


class JoinStep(Enum):
    """See `next_step`."""

    # What torch's own rules say.
    AS_TORCH = "as torch"
    # There is no place: wait, without having the workers of the others restarted.
    WAIT_AS_SPARE = "wait as spare"
    # The place of a member that is gone is this node's.
    STEP_IN = "step in"
    # All who are still expected are here, and they are enough: nobody else is waited for.
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """torch's state, as far as it matters here; nodes are keys of a Membership.

    Args:
        node: this one; is_complete: the present meeting has taken place.
        participants: of that meeting; waiting: who wants to be in the next one.
        spares: who waits without being in the way.
        min_nodes, max_nodes: of --nnodes, multiples of the unit.
        unit: of --node-unit: the job has a multiple of that many nodes.
    """

    node: str
    is_complete: bool
    participants: frozenset[str]
    waiting: frozenset[str]
    spares: frozenset[str]
    min_nodes: int
    max_nodes: int
    unit: int = 1


def next_step(rendezvous: Rendezvous, membership: Membership) -> JoinStep:
    """What a node does that is not yet in a completed meeting, or has just come to one."""
    if membership.round < 0:
        return JoinStep.AS_TORCH
    node, expected = rendezvous.node, membership.expected
    if node in expected:
        return JoinStep.COMPLETE if _is_enough(rendezvous, expected) else JoinStep.AS_TORCH
    if node in rendezvous.participants or node in rendezvous.waiting:
        return JoinStep.AS_TORCH
    candidates = sorted({*rendezvous.spares, node})
    is_next = candidates.index(node) < _welcome(rendezvous, expected, len(candidates))
    return JoinStep.STEP_IN if is_next else JoinStep.WAIT_AS_SPARE


def free_places(rendezvous: Rendezvous, expected: frozenset[str]) -> int:
    """How many more nodes may come, besides the members that are expected."""
    stepped_in = (rendezvous.participants | rendezvous.waiting) - expected
    return rendezvous.max_nodes - len(expected) - len(stepped_in)


def _welcome(rendezvous: Rendezvous, expected: frozenset[str], candidates: int) -> int:
    """How many of so many nodes that wait may come: as many as make the job whole units larger."""
    there = rendezvous.max_nodes - free_places(rendezvous, expected)
    most = min(rendezvous.max_nodes, there + candidates)
    return max(0, most - most % rendezvous.unit - there)


def surplus(rendezvous: Rendezvous, membership: Membership) -> tuple[str, ...]:
    """Participants beyond a multiple of the unit: those who have least to lose wait.

    The host of the store stays, and members stay before those who have just come.
    """
    present = sorted(
        rendezvous.participants,
        key=lambda key: (key != membership.host, key not in membership.expected, key),
    )
    return tuple(present[len(present) - len(present) % rendezvous.unit :])


def is_short(rendezvous: Rendezvous, expected: frozenset[str]) -> bool:
    """Whether all nodes that may still come are too few."""
    return rendezvous.max_nodes - free_places(rendezvous, expected) < rendezvous.min_nodes


def _is_enough(rendezvous: Rendezvous, expected: frozenset[str]) -> bool:
    present = rendezvous.participants
    if rendezvous.is_complete or rendezvous.node not in present or rendezvous.waiting:
        return False
    if not expected <= present or len(present) < rendezvous.min_nodes:
        return False
    return not _welcome(rendezvous, expected, len(rendezvous.spares))
