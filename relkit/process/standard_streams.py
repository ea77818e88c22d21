"""Descriptors 0 to 2 of a process that was started without them."""

from __future__ import annotations

import os
import sys


def hold_standard_descriptors() -> None:
    """Where one of 0 to 2 is closed, have /dev/null there, for this process alone.

    The next file that is opened would get its number, and whatever is printed would go into it.
    Programs that are started later find it closed, as they would without this.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free, which is this one; children do not inherit it.
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
