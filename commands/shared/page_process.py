"""Draws the page of an incident: the child of a launcher that goes on with its job meanwhile."""

from __future__ import annotations

import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

from relkit.errors import RelkitError

# The job comes first: warm standbys are made at this priority, too.
_NICE = 10
# The kernel takes this process before any other where memory runs out.
_FIRST_TO_GO = "1000"
MEMORY_BYTES = 2 << 30
DEADLINE_S = 60


def main() -> None:
    """Draw into the folder named on the command line; print what was written, a path a line."""
    signal.alarm(DEADLINE_S)
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO, encoding="ascii")
    from relkit.reports.hangs import timeline_folder

    try:
        written = timeline_folder.write(Path(sys.argv[1]))
    except (RelkitError, OSError) as error:
        sys.exit(str(error))
    print("\n".join(map(str, written)))
