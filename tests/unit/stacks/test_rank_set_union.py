"""RankSetUnion of rank sets against plain Python sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.ranks import RankSet
from relkit.stacks.rank_set_union import RankSetUnion

ranks = st.sets(st.integers(0, 199)).map(RankSet.of)


@pytest.mark.parametrize("world_size", [200, 1 << 30])
@given(sets=st.lists(ranks, min_size=1, max_size=5))
def test_the_union_of_sets(world_size: int, sets: list[RankSet]) -> None:
    wanted = RankSet.of(rank for members in sets for rank in members)
    assert RankSetUnion(world_size).of(sets) == wanted


@given(st.lists(ranks, min_size=2, max_size=6))
def test_equal_unions_are_one_object(sets: list[RankSet]) -> None:
    unions = RankSetUnion(200)
    first = unions.of(sets)
    assert unions.of(list(reversed(sets))) is first
    assert unions.of([first, sets[0]]) is first
