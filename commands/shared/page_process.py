"""Draws the page of an incident: the child of a launcher that goes on with its job meanwhile."""

from __future__ import annotations

import ctypes
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
_PR_SET_PDEATHSIG = 1
MEMORY_BYTES = 2 << 30
DEADLINE_S = 60


def stay_small() -> None:
    """Leave the time, the memory and the last word to the job; end with the launcher."""
    signal.alarm(DEADLINE_S)
    # With the thread that has started this process, which waits for it.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.nice(_NICE)
    # Of a site's own limit only root could make a higher one.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = int(sys.argv[2]) if hard == resource.RLIM_INFINITY else min(int(sys.argv[2]), hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO, encoding="ascii")


def main() -> None:
    """Draw into the folder named first, within so many bytes; print what was written, a path a
    line."""
    stay_small()
    from relkit.reports.hangs import timeline_folder

    try:
        written = timeline_folder.write(Path(sys.argv[1]))
    except (RelkitError, OSError) as error:
        sys.exit(str(error))
    # Whatever alphabet this process prints in.
    sys.stdout.buffer.write(b"\n".join(map(os.fsencode, written)))
