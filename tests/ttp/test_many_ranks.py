"""More ranks than a process may usually have files open, and others at the controller's door."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.job


def run(*options: object) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.ttp.ttp_many_ranks", *map(str, options)],
        cwd=_ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    result: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if result["linked"] == int(str(options[1])) else 1), done.stderr
    return result


def test_thirteen_hundred_ranks_and_three_hundred_who_say_nothing() -> None:
    found = run("--ranks", 1300, "--soft", 1024, "--hard", 4096, "--beats", 2, "--processes", 2)
    assert (found["linked"], found["ranks"], found["phase"]) == (1300, 1300, "normal")
    assert found["said"] == []
    # All but the one that left, which was the fault.
    assert found["told"] == 1299
    assert found["host_cpu_share"] < 0.6


@pytest.mark.long
def test_a_hard_limit_that_is_too_low_is_named_and_nothing_spins() -> None:
    found = run(
        "--ranks", 150, "--soft", 128, "--hard", 128, "--silent", 20, "--beats", 2,
        "--processes", 1, "--limit", 3,
    )  # fmt: skip
    # How many come in three seconds is the machine's; 128 descriptors are never enough for all.
    assert 0 < found["linked"] < 128
    assert found["host_cpu_share"] < 0.6
    assert any("raise the hard limit before the start" in line for line in found["said"])
