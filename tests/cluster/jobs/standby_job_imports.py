"""A module of the script's own: it may be imported once in a process, and only by the script."""

from __future__ import annotations

import os

TIMES = int(os.environ.get("STANDBY_JOB_IMPORTED", "0")) + 1
os.environ["STANDBY_JOB_IMPORTED"] = str(TIMES)
