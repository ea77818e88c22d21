"""What is asked of a job that may lose nodes, and how it ends for want of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relkit.errors import EXIT_CONVICTED, EXIT_PROBLEM, RelkitError

# Of torch's, with which it may still be told from clocks that differ.
HEARTBEAT_S, HEARTBEATS_OF_TORCH = 2, 8
# Each heartbeat is an exchange of the whole state: with more nodes, torch's own 5 s are kept.
MAX_OFTEN = 64
# Three heartbeats, and some time for the last of them to arrive: TCP sends again what was lost in
# an outage of 3 s, 3 s after it was first sent.
_MISSED, _MARGIN_S = 3, 1.0
# So many are enough where the host has not answered for longer than such an outage lasts, s.
_MISSED_WITH_HOST, UNANSWERED_S = 2, 3.0
# In larger jobs a host is asked once a heartbeat is this late, s.
_LATE_S = 0.3
# Between two heartbeats, those who wait look at the state so often. torch does once a second; with
# its heartbeats, in larger jobs, that is kept.
_LOOKS, TORCH_LOOK_S = 8, 1.0
# Failures before an attempt that lasted longer than this, s, say nothing about the next one.
ROW_S = 3600.0


class NoReplacement(RelkitError):
    """The job is short of nodes, and nobody took their places in time."""

    exit_code = EXIT_PROBLEM
    next_step = (
        "Start the job again on healthy nodes; --spares keeps nodes that step in, and "
        "--replacement-timeout says how long to wait for a new launcher."
    )


class NodeGivenUp(RelkitError):
    """The job's failures begin on this node, again and again: it leaves."""

    exit_code = EXIT_CONVICTED
    next_step = "Look at this node; the reports of those failures are in node 0's timeline folder."


@dataclass(frozen=True, slots=True)
class SpareSettings:
    """What the user asked for.

    Args:
        spares: launchers beyond --nnodes.
        replacement_timeout_s: how long to wait for a node in the place of one that is gone, s;
            None: as long as torch waits for nodes to join (join_timeout of --rdzv-conf).
        node_restarts: a node is given up when so many failures in a row have begun there; 0: never.
        node_unit: the job has a multiple of that many nodes; 1 in a job of fixed size.
        is_on: members go first, and the others wait; False: all is as in torch.
    """

    spares: int = 0
    replacement_timeout_s: float | None = None
    node_restarts: int = 3
    node_unit: int = 1
    is_on: bool = False

    @property
    def is_asked(self) -> bool:
        """The user wants it, and not only a job whose number of nodes may change."""
        return bool(self.spares) or self.replacement_timeout_s is not None or self.node_unit > 1


def dead_after_s(heartbeat_s: float) -> float:
    """Without a new heartbeat for this long a node is dead, s.

    Args:
        heartbeat_s: from one to the next, s.
    """
    return _MISSED * heartbeat_s + _MARGIN_S


def ask_after_s(heartbeat_s: float) -> float:
    """In larger jobs, a node's host is asked after so long without a new heartbeat, s."""
    return heartbeat_s + look_s(heartbeat_s) + _LATE_S


def lost_after_s(heartbeat_s: float) -> float:
    """Without a new heartbeat for this long, a node whose host does not answer is dead, s."""
    return _MISSED_WITH_HOST * heartbeat_s


def look_s(heartbeat_s: float) -> float:
    """From one look at the state to the next, of those who wait, s."""
    return heartbeat_s / _LOOKS if heartbeat_s <= HEARTBEAT_S else TORCH_LOOK_S


def words_of(missing: Mapping[str, str]) -> str:
    """`node a (why), node b (why)`.

    Args:
        missing: name -> why.
    """
    return ", ".join(f"node {name} ({why})" for name, why in sorted(missing.items()))
