"""The C of flash checkpoints by itself, under the sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.native.builds import SANITIZERS
from tests.native.kept import NATIVE, compiled
from tests.native.recording import c_compiler

pytestmark = pytest.mark.native

# gcc says of fences that its thread sanitizer does not see them.
_MORE = {"tsan": ("-Wno-tsan",)}
_WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror")


@pytest.mark.parametrize("sanitizer", sorted(SANITIZERS))
def test_copies_checksums_and_refusals(tmp_path: Path, sanitizer: str) -> None:
    sources = [NATIVE / "tests" / "slots_check.c", *sorted((NATIVE / "slots").glob("*.c"))]
    flags = ("-std=c11", "-D_GNU_SOURCE", "-O1", "-g", f"-I{NATIVE}", "-pthread", *_WARNINGS)
    more = (*SANITIZERS[sanitizer], *_MORE.get(sanitizer, ()))
    program = compiled(c_compiler(), tmp_path / "slots_check", sources, *flags, *more)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "all well\n"), done.stderr
