"""Rank sets as text: short, exact wherever there is room, and said so where there is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.ranks import RankSet
from relkit.reports.drawing.rank_sets import SetTable, badge, short_badge
from tests.reports.picture import parse_set
from tests.reports.trees import ranks


@given(st.sets(st.integers(0, 300)))
def test_the_compact_form_says_exactly_the_set(members: set[int]) -> None:
    assert parse_set(RankSet.of(members).fold_strided()) == RankSet.of(members)


@pytest.mark.parametrize(
    ("members", "wanted"),
    [
        (range(0, 64, 8), "0-56:8"),
        ([0, 1, 2, 7], "0-2,7"),
        ([1, 3, 5, 8, 10, 12, 20], "1-5:2,8-12:2,20"),
        ([4], "4"),
        ([1, 3], "1,3"),
    ],
)
def test_equal_steps_are_one_term(members: list[int], wanted: str) -> None:
    assert RankSet.of(members).fold_strided() == wanted


@pytest.mark.parametrize(
    ("text", "present", "long", "short"),
    [
        ("0-7", 8, "all", "all"),
        ("2", 8, "rank 2", "r2"),
        ("0-1,3-7", 8, "ranks 0-1,3-7", "7/8"),
        ("0-4,6-99999", 100_000, "all but 1", "all-1"),
        ("100-299,400", 1000, "201 ranks", "201/1000"),
    ],
)
def test_badges(text: str, present: int, long: str, short: str) -> None:
    assert badge(ranks(text), present) == long
    assert short_badge(ranks(text), present) == short


def test_a_table_beyond_its_budget_keeps_the_rarest_sets_whole() -> None:
    table = SetTable(RankSet.world(10_000), 10_000, budget_bytes=200)
    crowd = RankSet.of(n for n in range(10_000) if n % 7 in (1, 2, 4) and n % 11)
    assert [table.text(s).number for s in (crowd, ranks("9"), crowd)] == [0, 2, 0]
    # Number 1 is the complement of the crowd, which its label has to refer to.
    first, _, last = table.texts()
    assert last == "9"
    assert first == f"~{crowd.fold_briefly()}"
    assert f"({len(crowd)} ranks)" in first


def test_labels_spell_a_set_out_up_to_the_limit() -> None:
    table = SetTable(RankSet.world(8), 8)
    assert table.text(ranks("0-1,3")).label == "0-1/3|2/4-7"
    assert table.text(RankSet.world(8)).label == "0-7|"


def test_ranks_that_were_not_read_are_not_all() -> None:
    table = SetTable(RankSet.of(range(5)), 15)
    unread = table.text(ranks("5-14"))
    assert (unread.count, unread.badge, unread.short_badge) == (10, "ranks 5-14", "10/15")
    assert table.text(ranks("0-4")).badge == "all"


@given(st.lists(st.sets(st.integers(0, 50)), max_size=6))
def test_the_union_of_many_sets(groups: list[set[int]]) -> None:
    assert RankSet.union(RankSet.of(g) for g in groups) == RankSet.of(set().union(*groups))
