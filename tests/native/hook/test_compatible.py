"""Programs that the hook must not be preloaded into are told apart from those it may."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from relkit.hook.compatible import program_of, why_not_preloadable
from relkit.hook.locate import hook_library
from tests.native.recording import compile_c

pytestmark = pytest.mark.native


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "program.c"
    path.write_text("int main(void) { return 0; }\n")
    return path


def test_this_python_can_be_preloaded() -> None:
    assert why_not_preloadable(Path(sys.executable).resolve(), hook_library()) == ""


def test_a_static_program(source: Path, tmp_path: Path) -> None:
    program = compile_c(tmp_path / "program", [source], "-static")
    assert "linked statically" in why_not_preloadable(program, hook_library())


def test_a_musl_program(source: Path, tmp_path: Path) -> None:
    loader = "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"
    program = compile_c(tmp_path / "program", [source], loader)
    assert "ld-musl" in why_not_preloadable(program, hook_library())


def test_a_program_of_another_machine(source: Path, tmp_path: Path) -> None:
    program = compile_c(tmp_path / "program", [source])
    data = bytearray(program.read_bytes())
    data[18:20] = (243).to_bytes(2, "little")
    program.write_bytes(data)
    assert "machine 243" in why_not_preloadable(program, hook_library())


@pytest.mark.parametrize(
    "data", [b"", b"#!/bin/sh\nexit 0\n" * 9, b"\x7fELF\x02\x01", b"\x7fELF" * 99]
)
def test_what_is_no_program(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "program"
    path.write_bytes(data)
    assert why_not_preloadable(path, hook_library())
    assert why_not_preloadable(tmp_path / "none", hook_library())


def test_a_script_counts_by_its_interpreter(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    inner.write_text("#!/usr/bin/env -S sh -e\n")
    outer.write_text(f"#!{inner}\n")
    for script in (inner, outer):
        script.chmod(0o700)
        assert program_of(str(script)) == Path("/bin/sh").resolve()
    assert program_of("sh") == Path("/bin/sh").resolve()
    assert program_of("no such program") == Path("no such program").resolve()
