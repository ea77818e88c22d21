"""The committed reference pages are what the code makes of itself now."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.docs_reference import FOLDER, PAGES, leaves, option_variable_names
from tools.docs_variables import INTERNAL, OWN

ROOT = Path(__file__).resolve().parents[2]
# Not variables of relkit's: click's own for completion, and one that a worker's child is told.
NOT_OURS = {"RELKIT_COMPLETE"}


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_is_up_to_date(name: str) -> None:
    make: Callable[[], str] = PAGES[name]
    committed = FOLDER / name
    assert committed.read_text() == make(), f"{committed} is out of date: run `make docs`"


def literal_variables() -> set[str]:
    """RELKIT_* names that stand alone in a string of the source, or in a getenv() of the hook."""
    names: set[str] = set()
    for folder in ("relkit", "commands", "reports"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                value = node.value if isinstance(node, ast.Constant) else None
                text = value.decode("latin-1") if isinstance(value, bytes) else value
                if isinstance(text, str):
                    names.update(re.findall(r"^RELKIT_[A-Z_]+$", text))
    for path in (ROOT / "native" / "src").rglob("*.[ch]"):
        names.update(re.findall(r'"(RELKIT_[A-Z_]+)"', path.read_text()))
    return names - NOT_OURS


def test_every_variable_that_the_code_reads_is_documented() -> None:
    documented = {*OWN, *INTERNAL, *option_variable_names()}
    assert literal_variables() <= documented


def test_every_documented_relkit_variable_is_in_the_code() -> None:
    own = {name for name in (*OWN, *INTERNAL) if name.startswith("RELKIT_")}
    assert own <= literal_variables()


def test_every_example_of_a_command_is_a_command() -> None:
    shown = re.findall(r"^\$ ?(.*)$", PAGES["commands.md"](), re.MULTILINE)
    assert len(shown) > len(list(leaves()))
    assert [line for line in shown if "relkit" not in line] == []
