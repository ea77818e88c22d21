"""Builds the merge library from source for the tests, with warnings as errors."""

from __future__ import annotations

import subprocess
from pathlib import Path

NATIVE = Path(__file__).parents[3] / "native"
SOURCES = sorted((NATIVE / "merge").glob("*.c"))
_WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror")
_BUILD_S = 120


def build(compiler: str, output: Path, *arguments: str) -> Path:
    """Compile the library's sources, and what `arguments` add to them, into `output`."""
    command = [
        compiler, "-std=c11", "-D_GNU_SOURCE", "-g", "-fvisibility=hidden", "-fPIC",
        f"-I{NATIVE}", *_WARNINGS, *arguments, *map(str, SOURCES), "-o", str(output),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_S, check=False)
    assert done.returncode == 0, done.stderr
    return output
