"""RankSetUnion of rank sets against plain Python sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.ranks import RankSet
from relkit.stacks.rank_set_union import RankSetUnion

ranks = st.sets(st.integers(0, 199)).map(RankSet.of)


@pytest.mark.parametrize("world_size", [200, 1 << 30])
@given(found=st.lists(ranks, min_size=1, max_size=5))
def test_the_union_of_sets(world_size: int, found: list[RankSet]) -> None:
    wanted = RankSet.of(rank for one in found for rank in one)
    assert RankSetUnion(world_size).of(found) == wanted


@given(st.lists(ranks, min_size=2, max_size=6))
def test_equal_unions_are_one_object(found: list[RankSet]) -> None:
    unions = RankSetUnion(200)
    first = unions.of(found)
    assert unions.of(list(reversed(found))) is first
    assert unions.of([first, found[0]]) is first
