"""A page's child that draws for ever, in the place of relkit's own."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from relkit.commands.shared import page_process

DEADLINE_S, MEMORY_BYTES = page_process.DEADLINE_S, page_process.MEMORY_BYTES


def main() -> None:
    """Note this process's number in the folder, and stay."""
    page_process.stay_small()
    (Path(sys.argv[1]) / "pid").write_text(str(os.getpid()), encoding="ascii")
    threading.Event().wait()
