"""What depends on the real speed of this machine, which has to be quiet: `make bench`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.straggler.running import run_job
from tests.straggler.test_collect_jobs import DDP, same_steps
from tests.straggler.test_preflight import FLEET, document, preflight

pytestmark = [pytest.mark.speed, pytest.mark.job]


@pytest.fixture
def on_cores(tmp_path: Path) -> Iterator[str]:
    """A prefix that gives node b a core on which something else runs, and the others another."""
    busy_core, free_core = sorted(os.sched_getaffinity(0))[:2]
    script = tmp_path / "on_core"
    script.write_text(
        "#!/bin/sh\n"
        f'core={free_core}; case "$1" in b|neighbour) core={busy_core};; esac\n'
        'shift; exec taskset -c "$core" "$@"\n'
    )
    script.chmod(0o700)
    neighbours = [
        subprocess.Popen([script, "neighbour", sys.executable, "-c", "while True: pass"])
        for _ in range(2)
    ]
    yield f"{script} {{node}}"
    for neighbour in neighbours:
        neighbour.kill()
        neighbour.wait(10)


def test_the_node_that_shares_its_core_is_named(tmp_path: Path, on_cores: str) -> None:
    bundle = tmp_path / "bundle"
    report = document(preflight(*FLEET, "--command", on_cores, "--json", "-o", bundle))
    assert {row["node"] for row in report["slow_devices"]} == {"b"}, report["devices"]
    # Held against that run, the same nodes on the free core are none the worse.
    free = on_cores.replace("{node}", "x{node}")
    again = preflight(*FLEET, "--command", free, "--baseline", bundle, "--json")
    assert document(again)["slow_devices"] == []


def test_compute_under_collectives_belongs_to_the_rank_that_computes() -> None:
    options = ["--steps", "40", "--width", "768", "--slow-rank", "1", "--compute", "20"]
    job = run_job([DDP, *options], 2)
    assert len(same_steps(job, 2)) >= 30
    slow, fit = job.usual(1, "local_s"), job.usual(0, "local_s")
    assert slow > 1.1 * fit
    # Twenty passes more than twenty-four: the time of the other is not lost under its waiting,
    # where only a third of it would be left.
    assert fit > 0.35 * slow
    assert job.usual(1, "compute_s") > job.usual(0, "compute_s")
