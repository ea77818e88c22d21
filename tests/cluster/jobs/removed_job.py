"""Two ranks that work until a file says what to do: `end`, or `hang` in rank 1."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

PAUSE_S = 0.05


def main(folder: Path) -> None:
    """Work; `working` is there after the first steps."""
    dist.init_process_group("gloo")
    word = torch.zeros(1)
    for step in range(100_000):
        if dist.get_rank() == 0:
            word[0] = 1.0 if (folder / "end").exists() else 2.0 if (folder / "hang").exists() else 0
        dist.all_reduce(word)
        if step == 5 and dist.get_rank() == 0:
            (folder / "working").touch()
        if word.item() == 1.0:
            return
        if word.item() == 2.0 and dist.get_rank() == 1:
            threading.Event().wait()
        word.zero_()
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
