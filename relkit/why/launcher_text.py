"""What launchers write of the processes that ended: torchrun's table, srun, mpirun; pure."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, replace
from pathlib import Path

from relkit.why.clocks import clock_of
from relkit.why.model import Ended

_TABLE = re.compile(
    r"Root Cause \(first observed failure\)|^\s*(?:Failures|Other Failures):|FAILED\s*$"
)
_FIRST = "Root Cause (first observed"
_OTHERS = re.compile(r"^\s*(?:Other )?Failures:")
_FIELD = re.compile(r"^\s*(time|host|rank|exitcode)\s*:(.*)$")
_MAX_ENDED = 1 << 16
_RANK = re.compile(r"(\d{1,7})(?: \(local_rank: (\d{1,5})\))?")
_EXIT = re.compile(r"(-?\d{1,5})(?: \(pid: (\d{1,9})\))?")
_AGENT = re.compile(r"failed \(exitcode: (-?\d{1,5})\) local_rank: (\d{1,5}) \(pid: (\d{1,9})\)")
_DEEPSPEED = re.compile(r"--local_rank=(\d{1,5})\b.*exits with return code = (-?\d{1,5})")
_SRUN = re.compile(
    r"srun: error: ([\w.-]{1,253}): tasks? (\d{1,7}(?:[-,]\d{1,7}){0,64}): (.{0,120})"
)
_MPI = re.compile(
    r"process rank (\d{1,7}) with PID (\d{1,9}) on node ([\w.-]{1,253}) exited on signal (\d{1,3})"
)
_SRUN_CODE = re.compile(r"exit(?:ed with exit)? code (\d{1,3})", re.IGNORECASE)
_SRUN_WORDS = (
    ("segmentation fault", signal.SIGSEGV),
    ("bus error", signal.SIGBUS),
    ("aborted", signal.SIGABRT),
    ("killed", signal.SIGKILL),
    ("out of memory", signal.SIGKILL),
    ("terminated", signal.SIGTERM),
)
# Lines of a table behind the one that it begins with.
TABLE_LINES = 400


@dataclass(slots=True)
class LauncherText:
    """Collects what launchers say in one file.

    Args:
        path: of the file.
    """

    path: Path
    ended: list[Ended]
    is_first: bool = False
    current: Ended | None = None

    @property
    def is_full(self) -> bool:
        """More is not taken."""
        return len(self.ended) >= _MAX_ENDED

    def line(self, text: str, number: int, raw: str) -> None:
        """Read one line.

        Args:
            text: without prefixes; number: of it; raw: with them.
        """
        if _FIRST in text:
            self.is_first = True
        elif _OTHERS.match(text):
            self.is_first = False
        elif (entry := _FIELD.match(text)) is not None:
            self._field(entry[1], entry[2].strip(), number)
        elif (agent := _AGENT.search(text)) is not None:
            self._add(None, int(agent[2]), "", int(agent[3]), int(agent[1]), number, raw)
        elif (deepspeed := _DEEPSPEED.search(text)) is not None:
            self._add(None, int(deepspeed[1]), "", 0, int(deepspeed[2]), number, raw)
        elif (srun := _SRUN.search(text)) is not None:
            self._srun(srun, number, raw)
        elif (mpi := _MPI.search(text)) is not None:
            self._add(int(mpi[1]), None, mpi[3], int(mpi[2]), -int(mpi[4]), number, raw)

    def _field(self, name: str, value: str, number: int) -> None:
        if name == "time":
            self.current = Ended(
                rank=None,
                local_rank=None,
                host="",
                pid=0,
                exit_code=None,
                is_first=self.is_first,
                clock=clock_of(value.replace("_", " ")),
                path=self.path,
                line=number,
            )
            return
        if self.current is None:
            return
        if name == "host":
            self.current = replace(self.current, host=value[:253])
        elif name == "rank" and (rank := _RANK.match(value)) is not None:
            local = int(rank[2]) if rank[2] else None
            self.current = replace(self.current, rank=int(rank[1]), local_rank=local)
        elif name == "exitcode" and (code := _EXIT.match(value)) is not None:
            pid = int(code[2] or 0)
            if not self.is_full:
                self.ended.append(
                    replace(self.current, exit_code=int(code[1]), pid=pid, line=number)
                )
            self.current = None

    def _srun(self, match: re.Match[str], number: int, raw: str) -> None:
        how = match[3].lower()
        code = _SRUN_CODE.search(how)
        exit_code = int(code[1]) if code else None
        for word, number_of_signal in _SRUN_WORDS:
            if code is None and word in how:
                exit_code = -number_of_signal
        self._add(None, None, match[1], 0, exit_code, number, raw)

    def _add(
        self,
        rank: int | None,
        local_rank: int | None,
        host: str,
        pid: int,
        exit_code: int | None,
        number: int,
        raw: str,
    ) -> None:
        if not self.is_full:
            self.ended.append(
                Ended(
                    rank, local_rank, host, pid, exit_code, False, clock_of(raw), self.path, number
                )
            )


def begins_table(text: str) -> bool:
    """Whether torchrun's table of failures begins with this line."""
    return _TABLE.search(text) is not None
