"""relkit doctor's look at accelerator runtimes, with simulated ones in the loader's path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from relkit.hook.environment import worker_environment
from tests.native.simulated import DOUBLES, build_platforms

pytestmark = [pytest.mark.native, pytest.mark.timeout(120)]


@pytest.mark.long
def test_every_runtime_is_found_with_its_symbols(tmp_path: Path) -> None:
    libraries, recorders = tmp_path / "lib", tmp_path / "job"
    libraries.mkdir()
    recorders.mkdir(mode=0o700)
    build_platforms(libraries)
    (libraries / "libmccl.so").unlink()
    base = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
    done = subprocess.run(
        [sys.executable, "-m", "relkit.doctor.platforms"],
        env=base | worker_environment(recorders, base),
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    found = {row["platform"]: row for row in json.loads(done.stdout)}
    assert list(found) == ["cuda", "maca", "hip", "ascend"]
    for platform, row in found.items():
        assert len(row["libraries"]) == len(DOUBLES[platform]) - (platform == "maca")
        assert row["hooked"] > 10
    assert found["maca"]["absent"] == ["libmccl.so"]
    lost = [name for name in found["maca"]["missing"] if name.startswith("mccl")]
    assert "mcclAllReduce" in lost
    # The double of MACA lacks some rows by itself, as a real release may.
    assert found["maca"]["hooked"] + len(found["maca"]["missing"]) > 50
