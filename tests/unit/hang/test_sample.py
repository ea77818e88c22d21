"""Of a large job only some ranks are looked at more closely: nothing is said of the others."""

from __future__ import annotations

import pytest

from relkit.hang.attribute import analyse, attribute
from relkit.hang.model import JobView, RankView
from relkit.hook.model import Communicator, HookState
from tests.unit.hang.hang_builders import TIMEOUT_S, op, state

WORLD = 100_000


def view(rank: int, hook: HookState) -> RankView:
    return RankView(rank, f"host{rank // 8}", 1000 + rank, True, "S", hook)


def waits(rank: int) -> RankView:
    """It is in a collective of all."""
    return view(rank, state(rank, WORLD, [op(seq=6)], [op(seq=7, age_s=30.0, in_flight=True)]))


def sample(*views: RankView) -> JobView:
    return JobView("a job", WORLD, views, TIMEOUT_S, sees_all=False, is_sample=True)


def test_a_rank_that_has_not_come_is_named_and_no_other_is_looked_at() -> None:
    job = sample(waits(5), waits(6), view(70_000, state(70_000, WORLD, [op(seq=6)])))
    analysis = analyse(job)
    assert list(analysis.views) == [5, 6, 70_000]
    assert {rank for end in analysis.ends for rank in end} == {70_000}
    assert [culprit.rank for culprit in attribute(job, analysis).culprits] == [70_000]


def test_where_none_of_them_is_late_nobody_is_accused() -> None:
    verdict = attribute(sample(waits(5), waits(6)))
    assert not verdict.culprits
    why = "none of the 2 ranks that were looked at more closely stands out"
    assert verdict.inconclusive == why


def test_ranks_that_have_finished_prove_nothing_while_others_are_not_seen() -> None:
    left = [RankView(rank, "host", 1000 + rank, alive=False, exit_code=0) for rank in range(10, 14)]
    verdict = attribute(sample(waits(5), *left))
    assert "finished without" not in " ".join(c.sentence for c in verdict.culprits)


@pytest.mark.parametrize("name", ["send", "recv"])
def test_a_peer_that_is_not_seen_is_not_accused(name: str) -> None:
    flying = op(name, seq=3, age_s=30.0, in_flight=True)
    groups = [Communicator(0, 5, WORLD, "0")]
    verdict = attribute(sample(view(5, state(5, WORLD, [], [flying], groups)), waits(6)))
    assert {culprit.rank for culprit in verdict.culprits} <= {5, 6}
