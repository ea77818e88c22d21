"""Recorded outputs and pictures speak as the code does today."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import pytest

from relkit.commands.subcommands.straggler_screen import _HEADER
from relkit.reports.flames import flame_svg

ROOT = Path(__file__).resolve().parents[2]
OUTPUTS = sorted((ROOT / "docs" / "outputs").glob("*.txt"))
WATCHED = (ROOT / "docs" / "outputs" / "straggler-watch.txt",)
PICTURES = [
    path
    for path in sorted((ROOT / "docs" / "pictures").glob("*.svg"))
    if 'class="rk-flame"' in path.read_text(encoding="utf-8")
]
# "    local time of a step: 1.15 x usual  [hook, per step]", below a finding.
_FACT = re.compile(r"^    (?!because|do:)([a-z/][^:`]*): ")
_ADVICE = re.compile(r"^    do: (.*)$")
# The code breaks its sentences at the ends of lines: only their beginning is looked for.
_BEGINNING = 12


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_flame_picture_has_the_script_and_looks_of_today(path: Path) -> None:
    picture = path.read_text(encoding="utf-8")
    anew = f"make docs/pictures/{path.name} anew: it is py_stack.svg of `relkit demo`"
    assert flame_svg.script_block() in picture, anew
    assert flame_svg.style_block() in picture, anew
    assert flame_svg.policy_block() in picture, anew


def test_there_is_a_flame_picture() -> None:
    assert PICTURES


@pytest.mark.parametrize("path", WATCHED, ids=lambda path: path.name)
def test_the_table_of_stragglers_has_the_columns_of_today(path: Path) -> None:
    heads = [line for line in path.read_text(encoding="utf-8").splitlines() if "RANK  " in line]
    columns = " ".join((*_HEADER[:-1], "state")).upper()
    assert [" ".join(head.split()) for head in heads] == [columns]


@lru_cache
def _code() -> str:
    return "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("commands", "relkit", "reports")
        for path in sorted((ROOT / folder).rglob("*.py"))
    )


def test_there_are_facts_and_advice_to_look_at() -> None:
    lines = [line for path in OUTPUTS for line in path.read_text(encoding="utf-8").splitlines()]
    assert any(map(_FACT.match, lines))
    assert any(map(_ADVICE.match, lines))


@pytest.mark.parametrize("path", OUTPUTS, ids=lambda path: path.name)
def test_facts_and_advice_of_a_finding_have_the_names_of_today(path: Path) -> None:
    unknown = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if advice := _ADVICE.match(line):
            if advice[1][:_BEGINNING] not in _code():
                unknown.append(line)
        elif (fact := _FACT.match(line)) and f'"{fact[1]}"' not in _code():
            unknown.append(line)
    assert not unknown, unknown
