"""A moment for people at a terminal."""

from __future__ import annotations

import time


def local_time(unix_s: float) -> str:
    """Local time to the second; "-" for what is none."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_s))
    except (ValueError, OverflowError, OSError):
        return "-"
