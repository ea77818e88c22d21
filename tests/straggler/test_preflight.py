"""relkit straggler preflight with agents on this machine, one of which computes slowly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE

LIMIT_S = 110 * PATIENCE
FLEET = (
    "--nodes", "a,b,c", "--via", "command", "--duration", "0.1", "--slow", "0.3",
)  # fmt: skip


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


# A clock of the probe's own, which goes on by as much at each look: what a node computes in a
# second is what the test says, on any machine. All else is real.
_CLOCK = """
import itertools, os, sys, time
if "relkit.netcheck.measure.probes.compute_child" in sys.orig_argv:
    looks = itertools.count()
    time.perf_counter = lambda: next(looks) * float(os.environ["TEST_TICK_S"])
"""


@pytest.fixture
def with_rates(tmp_path: Path) -> str:
    """A prefix under which node b computes at half the others' rate."""
    (tmp_path / "sitecustomize.py").write_text(_CLOCK)
    script = tmp_path / "with_rate"
    script.write_text(
        "#!/bin/sh\n"
        f'export PYTHONPATH="{tmp_path}${{PYTHONPATH:+:$PYTHONPATH}}" TEST_TICK_S=0.01\n'
        '[ "$1" != b ] || export TEST_TICK_S=0.02\n'
        'shift; exec "$@"\n'
    )
    script.chmod(0o700)
    return f"{script} {{node}}"


@pytest.mark.timeout(120)
def test_the_node_that_computes_slowly_is_named(tmp_path: Path, with_rates: str) -> None:
    bundle = tmp_path / "bundle"
    done = preflight(*FLEET, "--rounds", "2", "--command", with_rates, "--json", "-o", bundle)
    report = document(done)
    assert report["schema"] == "relkit.straggler-preflight/1"
    assert {row["node"] for row in report["slow_devices"]} == {"b"}, report["devices"]
    assert "compute_gflops" in {row["figure"] for row in report["slow_devices"]}
    assert [len(row["compute_gflops"]) for row in report["devices"]] == [2, 2, 2]
    assert done.returncode == 1
    slow = next(f for f in report["findings"] if f["id"] == "RK-STRAG-021")
    assert slow["nodes"] == "b"
    assert slow["advice"]
    assert (bundle / "report.html").is_file()

    # Held against that run, nodes that all compute like a and c are none the worse.
    alike = with_rates.replace("{node}", "x{node}")
    again = preflight(*FLEET, "--rounds", "2", "--command", alike, "--baseline", bundle, "--json")
    assert document(again)["slow_devices"] == []


def test_help_has_an_example_and_a_bundle_is_not_replaced(tmp_path: Path) -> None:
    shown = preflight("--help")
    assert "relkit straggler preflight --nodes hosts.txt" in shown.stdout
    (tmp_path / "check.json").write_text("{}")
    refused = preflight("--nodes", "a", "-o", tmp_path)
    assert refused.returncode == 2
    assert "--force" in refused.stderr
