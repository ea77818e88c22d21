"""What the history holds: events of jobs and checks, and which nodes they name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class What(str, Enum):
    """What an event is about."""

    START = "start"
    RESTART = "restart"
    INCIDENT = "incident"
    VERDICT = "verdict"
    SAVE = "save"
    NETCHECK = "netcheck"
    DRAIN = "drain"
    UNDRAIN = "undrain"
    UNDO = "undo"
    RETEST = "retest"
    END = "end"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Args:
        at_unix_s: when.
        what: see What.
        job: its id; "" for a network check of no job.
        run: tells two runs of one job apart.
        host: that has noted it.
        text: in words.
        finding: id of the finding; "" where it is none.
        status: of the finding, or how a job has ended; "" for neither.
        ranks: that it is about, folded; nodes: that it names.
        speaks_of_nodes: it says something of these nodes, and not only of the program on them.
        of_nodes: how many nodes the job or the check had; 0: not known.
        step: of a save, or at a start; -1: none.
        seconds: that it took; 0: not measured.
    """

    at_unix_s: float
    what: What
    job: str = ""
    run: str = ""
    host: str = ""
    text: str = ""
    finding: str = ""
    status: str = ""
    ranks: str = ""
    nodes: tuple[str, ...] = ()
    speaks_of_nodes: bool = False
    of_nodes: int = 0
    step: int = -1
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Mention:
    """A verdict has named a node, and says something of it.

    Args:
        node: its name; at_unix_s: when.
        run: of the job, or the check; finding: its id.
        is_alone: it was the job's only node: no other could have been named.
    """

    node: str
    at_unix_s: float
    run: str
    finding: str
    is_alone: bool = False
