"""What a launcher is to do with a job that hangs."""

from __future__ import annotations

from enum import Enum


class OnHang(str, Enum):
    """What to do with a job that hangs, once it has been reported.

    SAVE has a job under try-to-persist save its last committed step and end (or restart, where
    restarts are left); for any other job it is the same as REPORT.
    """

    REPORT = "report"
    SAVE = "save"
    RESTART = "restart"
    ABORT = "abort"

    def __str__(self) -> str:
        return self.value
