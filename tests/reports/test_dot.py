"""The DOT graph: one node a chain, every rank set on its edge, safe names, a deadline."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from relkit.ranks import RankSet
from relkit.reports.dot import picture, stack_dot
from tests.reports.trees import Stack, grow, hang, hostile, ranks


def test_the_graph_is_the_one_that_was_looked_at(gold: Callable[[str, str], None]) -> None:
    gold("cpp_stack.dot", stack_dot(hang("cpp", present=ranks("0-6"))))


def test_chains_are_one_node_and_edges_say_who_went_there() -> None:
    text = stack_dot(hang("py"))
    assert 'label="1:[2]"' in text
    assert 'label="7:[0-1,3-7]"' in text
    assert len(re.findall(r"^\tn\d+ \[", text, re.M)) == 5


def test_a_chain_ends_where_a_stack_does() -> None:
    chain = [(name, "a.py:1") for name in "mfg"]
    for stacks, nodes in (([3], 1), ([2, 3], 2)):
        tree = grow("py", 4, [Stack(tuple(chain[:count]), ranks("0-3")) for count in stacks])
        assert len(re.findall(r"^\tn\d+ \[", stack_dot(tree), re.M)) == nodes


def test_absent_ranks_are_a_node_of_their_own() -> None:
    assert "absent (no dump)" in stack_dot(hang("py", present=ranks("0-4")))


def test_hostile_names_cannot_leave_their_label() -> None:
    text = stack_dot(hostile())
    assert "\x00" not in text
    assert not re.search(r'label="[^"\\]*\n?[^"\\]*<script>[^"]*"[^\]\s]', text)
    for line in text.splitlines():
        assert line.count('"') % 2 == line.count('\\"') % 2 or "absent" in line


def test_a_huge_tree_stays_a_graph_that_can_be_laid_out() -> None:
    tree = grow("cpp", 9000, [Stack((("f", "x"), (f"g{i}", "x")), RankSet.of([i])) for i in
                              range(9000)])  # fmt: skip
    text = stack_dot(tree)
    assert len(re.findall(r"^\tn\d+ \[", text, re.M)) < 1500
    assert "more" in text


@pytest.mark.parametrize(
    ("script", "wanted"),
    [("cat", "digraph"), ("exit 3", None), ("exec sleep 30", None)],
)
def test_the_layout_program_has_a_deadline(
    script: str, wanted: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "dot"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    made = picture(stack_dot(hang("py")), timeout_s=0.5)
    assert (made is None) if wanted is None else wanted in (made or "")


def test_no_graphviz_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert picture("digraph {}") is None


@pytest.mark.dot
def test_the_real_layout_program_draws_it_hostile_names_included() -> None:
    for tree in (hang("mixed"), hostile()):
        made = picture(stack_dot(tree))
        assert made is not None
        assert ElementTree.fromstring(made).tag.endswith("svg")  # noqa: S314  our own output
