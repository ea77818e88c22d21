"""The deadlines of a controller, its phases, and the actions that it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # `relkit launch --help`, which shows the deadlines, does not wait for these.
    from relkit.ttp.messages import Message
    from relkit.ttp.save_outcome import SaveOutcome


class Phase(Enum):
    """Where the job stands."""

    GATHERING = "gathering"
    NORMAL = "normal"
    SETTLING = "settling"
    PAUSING = "pausing"
    COLLECTING = "collecting"
    SAVING = "saving"
    COMMITTING = "committing"
    CLEARING = "clearing"
    OVER = "over"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Limits:
    """How long things may take, seconds.

    Args:
        settle_s: wait after a first fault, so that deaths of one cause are one fault.
        state_s: wait for a rank's state, on top of one step, where the others can save without it.
        heartbeat_s: between two signs of life; missed_heartbeats: after as many in a row a rank is
            silent, which is a fault.
        overall_s: from the fault to the end of everything (TTP_OT); a rank that holds what no other
            has is waited for as long.
        takeover_s: how long a backup waits for ranks to register, if those that have are a majority
            and hold everything; for that it waits a sixth of overall_s.
    """

    settle_s: float = 0.03
    state_s: float = 5.0
    heartbeat_s: float = 1.0
    missed_heartbeats: int = 3
    overall_s: float = 120.0
    takeover_s: float = 4.0

    @property
    def majority_s(self) -> float:
        """How long a backup waits for a majority, and for a holder of everything."""
        return max(self.takeover_s, self.overall_s / 6)

    @property
    def silent_s(self) -> float:
        """From when on a rank is silent."""
        return self.heartbeat_s * self.missed_heartbeats


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to these ranks."""

    ranks: tuple[int, ...]
    message: Message


@dataclass(frozen=True, slots=True)
class Kill:
    """End a rank's process: it is no longer in the job, and must not wake up and go on."""

    rank: int
    reason: str


@dataclass(frozen=True, slots=True)
class Log:
    """A line for the person at the terminal."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Over:
    """The end: nothing more will come."""

    outcome: SaveOutcome


Action = Send | Kill | Log | Over
