"""Which lines of a script may change what an import after them gives."""

from __future__ import annotations

import math

import pytest

from relkit.launch.warm_standby.only_imports import first_other_line

HARMLESS = """
\"\"\"A script.\"\"\"
from __future__ import annotations
import os, sys
from typing import TYPE_CHECKING, Optional
__all__ = ["main"]
LIMIT = 3; PATH = os.sep + "x"
SIZES = {"a": [1, -2], "b": (sys.maxsize, None)}
if TYPE_CHECKING or sys.version_info >= (3, 9):
    import json
else:
    pass
try:
    import tomllib
except (ImportError, AttributeError) as error:
    tomllib = None
else:
    FOUND = True
finally:
    import math
def main(a: Optional[int] = None, *, b: list[str] = [], c=None) -> dict[str, int]:
    os.environ["A"] = "b"
async def other(): ...
"""


def test_what_only_imports_and_names_is_harmless() -> None:
    assert first_other_line(HARMLESS.encode()) == math.inf
    assert first_other_line(b"") == math.inf


@pytest.mark.parametrize(
    "line",
    [
        "sys.path.insert(0, 'mine')",
        "sys.path += ['mine']",
        "sys.path[:0] = ['mine']",
        "sys.path = ['mine', *sys.path]",
        "os.environ['A'] = '1'",
        "env['A'] = '1'",
        "os.environ.setdefault('A', '1')",
        "del os.environ['A']",
        "os.environ |= {'A': '1'}",
        "sys.modules['numpy'] = stub",
        "os.sep = '/'",
        "numpy = sys.modules['numpy'] = stub",
        "warnings.filterwarnings('ignore')",
        "X = importlib.import_module('settings')",
        "X = [f(n) for n in 'ab']",
        "if prepare(): pass",
        "if True: prepare()",
        "while True: pass",
        "for n in 'ab': pass",
        "with opened: pass",
        "assert prepare()",
        "raise SystemExit",
        "class A: pass",
        "@prepare\ndef main(): ...",
        "@prepare\nclass A: ...",
        "def main(a=prepare()): ...",
        "def main(a: prepare()): ...",
        "def main(*, a=prepare()): ...",
        "def main() -> prepare(): ...",
        "def __getattr__(name): ...",
        "__path__ = []",
        "try:\n    pass\nexcept prepare(): pass",
        "try: prepare()\nfinally: pass",
        "try: pass\nfinally: prepare()",
        "try: pass\nexcept KeyError: prepare()",
        "try: pass\nexcept KeyError: pass\nelse: prepare()",
        "import os; prepare()",
        "(X := 1)",
        "X = f'{prepare}'",
        "prepare",
    ],
)
def test_anything_else_may_change_an_import(line: str) -> None:
    found = first_other_line(f"import os\n\n{line}\nimport numpy\n".encode())
    # A statement that is harmless but for a part of it begins above that.
    parts = [number for number, each in enumerate(line.splitlines(), 3) if "prepare" in each]
    assert found == (parts[0] if parts else 3)


def test_what_is_no_python_is_an_error() -> None:
    for source in (b"import", b"\0", b"\xff\xfe"):
        with pytest.raises((SyntaxError, ValueError)):
            first_other_line(source)
