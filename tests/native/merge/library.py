"""Builds the merge library from source for the tests, with warnings as errors."""

from __future__ import annotations

from pathlib import Path

from tests.native.kept import NATIVE, compiled

SOURCES = sorted((NATIVE / "merge").glob("*.c"))
_WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror")


def build(compiler: str, output: Path, *arguments: str) -> Path:
    """Compile the library's sources, and what `arguments` add to them, into `output`."""
    flags = (
        "-std=c11",
        "-D_GNU_SOURCE",
        "-g",
        "-fvisibility=hidden",
        "-fPIC",
        f"-I{NATIVE}",
        f"-I{NATIVE / 'include'}",
    )
    return compiled(compiler, output, SOURCES, *flags, *_WARNINGS, *arguments)
