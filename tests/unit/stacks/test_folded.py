"""Folded text stays parseable whatever stands in a name, and exact at any size."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.ranks import RankSet
from relkit.stacks.folded import MAX_EXACT_CHARS, fold_ranks, safe_name
from relkit.stacks.merge import merge_dumps
from relkit.stacks.model import Frame, RankDump, ThreadStack
from tests.unit.stacks.text_lines import text_lines


def unfold(text: str) -> set[int]:
    """The inverse of fold_ranks, for both of its forms."""
    ranks: set[int] = set()
    for part in filter(None, text.split("/")):
        span, _, step = part.partition(":")
        low, _, high = span.partition("-")
        ranks.update(range(int(low), int(high or low) + 1, int(step or 1)))
    return ranks


def test_names_that_would_break_a_line_are_escaped() -> None:
    assert safe_name("a;b\nc\r\x85\u2028d@e<script>") == "a\\x3bb\\nc\\x0d\\x85\\u2028d@e<script>"


@given(st.text())
def test_a_safe_name_is_one_frame_of_one_line(name: str) -> None:
    safe = safe_name(name)
    assert ";" not in safe
    assert len(f"x{safe}x".splitlines()) == 1


@given(st.text(max_size=8), st.text(max_size=8))
def test_a_folded_line_can_be_taken_apart(func: str, source: str) -> None:
    frames = (Frame("leaf", ""), Frame(func, source), Frame("main", "m.py:1"))
    dump = RankDump(0, 1, 1, "S", python=(ThreadStack(1, "", frames),))
    (line,) = (line for line in text_lines(merge_dumps([dump], 1).python) if "leaf" in line)
    stack, weight = line.rsplit(" ", 1)
    names = [word.rsplit("@", 1)[0] for word in stack.split(";")]
    assert weight == "1"
    assert names == ["main@m.py:1", safe_name(f"{func}@{source}"), "leaf@"]


def test_short_sets_are_written_as_the_viewer_writes_them() -> None:
    assert fold_ranks(RankSet.of([0, 2, 4, 6])) == "0/2/4/6"
    assert fold_ranks(RankSet()) == ""


def test_long_sets_say_regular_steps_in_short() -> None:
    assert fold_ranks(RankSet.of(range(0, 65_536, 2))) == "0-65534:2"
    mixed = [*range(0, 20_000, 8), *range(20_000, 30_000), 30_002, 30_005]
    assert fold_ranks(RankSet.of(mixed)) == "0-19992:8/20000-29999/30002/30005"


@pytest.mark.parametrize("step", range(1, 10))
def test_both_forms_are_exact(step: int) -> None:
    random = Random(step)  # noqa: S311
    ranks = {*random.sample(range(20_000), 1000), *range(20_000, 24_000, step)}
    text = fold_ranks(RankSet.of(ranks))
    assert unfold(text) == ranks
    assert len(text) <= len(RankSet.of(ranks).fold("/"))
    assert len(text) > MAX_EXACT_CHARS or ":" in text
