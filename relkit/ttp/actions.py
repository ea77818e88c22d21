"""What a controller is told to keep to, and what it wants done."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

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
        state_s: longest wait for a rank's state, on top of one step.
        heartbeat_s: between two signs of life; missed_heartbeats: as many in a row mean death.
        overall_s: from the fault to the end of everything (TTP_OT).
        takeover_s: how long a backup waits for ranks that have not found it yet.
    """

    settle_s: float = 0.03
    state_s: float = 5.0
    heartbeat_s: float = 1.0
    missed_heartbeats: int = 3
    overall_s: float = 120.0
    takeover_s: float = 4.0


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to these ranks."""

    ranks: tuple[int, ...]
    message: Message


@dataclass(frozen=True, slots=True)
class Kill:
    """End a rank's process: it is not in the job any more, and must not wake up into it."""

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
