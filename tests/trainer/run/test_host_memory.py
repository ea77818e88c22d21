"""Freed memory is used again: a process of its own counts its page faults."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import resource, sys
import numpy as np
from relkit.trainer.run.job import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory()
faults = []
for _ in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [np.empty(12_000_000, np.float32) for _ in range(2)]
    for block in blocks:
        block[::64] = 1.0
    del blocks, block
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(max(faults[1:]))
"""


def most_faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, timeout=50, check=True
    )
    return int(done.stdout)


def test_later_steps_find_the_pages_of_earlier_ones() -> None:
    assert most_faults("keep") < most_faults("give back") / 10
