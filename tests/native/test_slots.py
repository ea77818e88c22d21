"""The C of flash checkpoints by itself, under the sanitizers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.native.builds import SANITIZERS
from tests.native.recording import NATIVE

pytestmark = pytest.mark.native

# gcc says of fences that its thread sanitizer does not see them.
_MORE = {"tsan": ("-Wno-tsan",)}
_WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror")


@pytest.mark.parametrize("sanitizer", sorted(SANITIZERS))
def test_copies_checksums_and_refusals(tmp_path: Path, sanitizer: str) -> None:
    program = tmp_path / "slots_check"
    sources = [NATIVE / "tests" / "slots_check.c", *sorted((NATIVE / "slots").glob("*.c"))]
    done = subprocess.run(
        [
            os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-O1", "-g", f"-I{NATIVE}",
            *_WARNINGS, *SANITIZERS[sanitizer],
            *_MORE.get(sanitizer, ()), *map(str, sources), "-pthread", "-o", str(program),
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "all well\n"), done.stderr
