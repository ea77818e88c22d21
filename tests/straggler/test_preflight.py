"""relkit straggler preflight with agents on this machine, one of which shares its core."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

LIMIT_S = 110


def preflight(*line: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "relkit", "straggler", "preflight", *map(str, line)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    plain = json.loads(done.stdout)
    assert isinstance(plain, dict)
    return plain


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


@pytest.mark.timeout(120)
def test_the_node_that_shares_its_core_is_named(tmp_path: Path, on_cores: str) -> None:
    fleet = ("--nodes", "a,b,c", "--via", "command", "--duration", "0.1")
    bundle = tmp_path / "bundle"
    # The link is not what this is about: agents of one machine have none.
    # Where other work disturbs rounds, few of them scatter too much for a verdict.
    rounds = ("--rounds", "5")
    done = preflight(
        *fleet, "--command", on_cores, "--slow", "0.3", *rounds, "--json", "-o", bundle
    )
    report = document(done)
    assert report["schema"] == "relkit.straggler-preflight/1"
    assert {row["node"] for row in report["slow_devices"]} == {"b"}, report["devices"]
    assert "compute_gflops" in {row["figure"] for row in report["slow_devices"]}
    assert [len(row["compute_gflops"]) for row in report["devices"]] == [5, 5, 5]
    assert done.returncode == 1
    slow = next(f for f in report["findings"] if f["id"] == "RK-STRAG-021")
    assert slow["nodes"] == "b"
    assert slow["advice"]
    assert (bundle / "report.html").is_file()

    # Held against that run, the same nodes on the free core are none the worse.
    again = preflight(
        *fleet, "--command", on_cores.replace("{node}", "x{node}"), *rounds,
        "--slow", "0.3", "--baseline", bundle, "--json",
    )  # fmt: skip
    assert document(again)["slow_devices"] == []


def test_help_has_an_example_and_a_bundle_is_not_replaced(tmp_path: Path) -> None:
    shown = preflight("--help")
    assert "relkit straggler preflight --nodes hosts.txt" in shown.stdout
    (tmp_path / "check.json").write_text("{}")
    refused = preflight("--nodes", "a", "-o", tmp_path)
    assert refused.returncode == 2
    assert "--force" in refused.stderr
