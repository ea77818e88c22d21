"""What can be changed of straggler detection while a job runs.

Apart from what reads their file, which `relkit launch --help`, where they are shown, need not load.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Mode(str, Enum):
    """What is done about a straggler: nothing is collected, it is said, its node leaves."""

    OFF = "off"
    WARN = "warn"
    EXCLUDE = "exclude"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Control:
    """The settings that can be changed while a job runs.

    Args:
        mode: see Mode.
        min_slowdown: the smallest slowdown that is reported, as a share of the peers' time, 0.01
            to 10.
    """

    mode: Mode = Mode.WARN
    min_slowdown: float = 0.04

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**asdict(self), "mode": self.mode.value}
