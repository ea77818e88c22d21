"""How much a line says of the cause of a failure."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """How much a line says of the cause; the first is the strongest."""

    ROOT = 0
    """It names the cause itself."""
    WEAK = 1
    """It may be the cause as well as what follows from one."""
    CONSEQUENCE = 2
    """It follows from the failure of another process."""
    LAUNCHER = 3
    """A launcher's word that a process of its has ended."""
    MENTION = 4
    """A warning, or what the program has handled."""
