"""The library exports exactly the table, and needs nothing but libc."""

from __future__ import annotations

import re
import subprocess

import pytest

from relkit.hook.locate import hook_library
from tests.native.hook_victims import NATIVE

pytestmark = pytest.mark.native


def _lines(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    return done.stdout.splitlines()


def _table() -> set[str]:
    macro = "#define X(id, platform, kind, name, required) SYMBOL RK_SYMBOL_##id\nRELKIT_HOOKS(X)\n"
    source = f'#define RELKIT_SYMBOLS_ONLY\n#include "{NATIVE}/src/table/table.h"\n{macro}'
    done = subprocess.run(
        ["cc", "-E", "-P", "-x", "c", "-"],
        input=source,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    rows = done.stdout.split("SYMBOL")[1:]
    return {"".join(re.findall(r'"([^"]*)"', row)) for row in rows}


def test_exported_symbols_are_the_table() -> None:
    listed = _lines("nm", "-D", "--defined-only", str(hook_library()))
    table = _table()
    assert len(table) > 20
    assert {line.split()[-1] for line in listed} == table


def test_needs_libc_only() -> None:
    needed = [line for line in _lines("readelf", "-dW", str(hook_library())) if "NEEDED" in line]
    assert [re.findall(r"\[(.*)\]", line) for line in needed] == [["libc.so.6"]]


def test_has_no_constructor_of_its_own() -> None:
    symbols = _lines("readelf", "-dW", str(hook_library()))
    sizes = [line.split() for line in symbols if "INIT_ARRAYSZ" in line]
    # The C runtime's frame_dummy is the one entry that every shared library has.
    assert all(int(size[2]) <= 8 for size in sizes)
