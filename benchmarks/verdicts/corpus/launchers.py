"""How launchers keep what ranks write: each line with its mark, in one file or in several; pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Written:
    """A line that a rank has written.

    Args:
        at_s: when, Unix time; rank, pid: who; stream: `stdout` or `stderr`.
        text: without its end.
    """

    at_s: float
    rank: int
    pid: int
    stream: str
    text: str


def _docker(line: Written) -> str:
    at = datetime.fromtimestamp(line.at_s, timezone.utc).isoformat().replace("+00:00", "000Z")
    return json.dumps({"log": f"{line.text}\n", "stream": line.stream, "time": at})


_MARKS: dict[str, Callable[[Written], str]] = {
    "srun": lambda line: f"{line.rank}: {line.text}",
    "mpirun": lambda line: f"[1,{line.rank}]<{line.stream}>: {line.text}",
    "kubectl": lambda line: f"[pod/llama-worker-{line.rank}/pytorch] {line.text}",
    "pdsh": lambda line: f"node{line.rank + 1:02d}: {line.text}",
    "ray": lambda line: (
        f"\x1b[36m(RayTrainWorker pid={line.pid}, ip=10.0.0.{line.rank + 11})\x1b[0m {line.text}"
    ),
    "merged": lambda line: line.text,
}
# One file a rank.
_FILES: dict[str, tuple[str, Callable[[Written], str]]] = {
    "docker": ("worker-{}-json.log", _docker),
    "rank-files": ("rank_{}.log", lambda line: line.text),
    "slurm-files": ("slurm-4711_{}.out", lambda line: line.text),
}
FORMS = (*_MARKS, *_FILES)


def keep(lines: Sequence[Written], form: str, folder: Path) -> None:
    """Write the files that a launcher would have left.

    Args:
        lines: of all ranks; form: one of FORMS.
    """
    ordered = sorted(lines, key=lambda line: line.at_s)
    if form in _MARKS:
        mark = _MARKS[form]
        (folder / "job.log").write_text("".join(f"{mark(line)}\n" for line in ordered))
        return
    name, shown = _FILES[form]
    for rank in sorted({line.rank for line in lines}):
        text = "".join(f"{shown(line)}\n" for line in ordered if line.rank == rank)
        (folder / name.format(rank)).write_text(text)
