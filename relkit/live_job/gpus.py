"""What the GPUs of this host do, as nvidia-smi says; nothing where there is none."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from relkit.process.bounded_child import run_child

_QUERY = "index,utilization.gpu,memory.used,memory.total"
_DEADLINE_S = 3.0
_MOST = 64


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; None for what it does not say.

    Args:
        index: its number; use_percent: share of time in which a kernel ran.
        used_mib, total_mib: of its memory.
    """

    index: int
    use_percent: float | None
    used_mib: float | None
    total_mib: float | None


def gpus_here() -> tuple[Gpu, ...]:
    """Those of this host; none where the tool is missing, or does not answer in time."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    argv = [tool, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        done = run_child(argv, _DEADLINE_S)
    except OSError:
        return ()
    return () if done.returncode else parse_gpus(done.stdout.decode("utf-8", "replace"))


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """The rows of nvidia-smi's CSV; a line that is none is left out."""
    gpus = []
    for line in text.splitlines()[:_MOST]:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 4 and cells[0].isdecimal():
            gpus.append(Gpu(int(cells[0][:6]), *map(_number, cells[1:])))
    return tuple(gpus)


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if 0.0 <= value < 1e9 else None


def gpu_words(gpu: Gpu) -> str:
    """ "gpu 0: 97 %, 61 of 80 GiB"."""
    use = "-" if gpu.use_percent is None else f"{gpu.use_percent:.0f} %"
    if gpu.used_mib is None or gpu.total_mib is None:
        return f"gpu {gpu.index}: {use}"
    return f"gpu {gpu.index}: {use}, {gpu.used_mib / 1024:.0f} of {gpu.total_mib / 1024:.0f} GiB"
