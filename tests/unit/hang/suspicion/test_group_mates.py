"""In a large job, those for whom ranks may wait are asked for: the members of their groups."""

from __future__ import annotations

from dataclasses import replace

from relkit.hang.model import RankView
from relkit.hang.suspicion.group_mates import group_mates
from relkit.hook.model import Communicator, HookState, Op, OpKind
from relkit.ranks import RankSet

SECOND = 10**9
WORLD = 128
TENSOR, PIPELINE, WHOLE = 1, 2, 0
NOBODY = RankSet()


def view(rank: int, waits_in: int | None, age_s: float = 10.0, *, alive: bool = True) -> RankView:
    """Of a job of 16 pipelines with 2 stages of 4 tensor-parallel ranks."""
    pipeline, inner = divmod(rank, 8)
    stage, tensor = divmod(inner, 4)
    groups = (
        Communicator(0, rank, WORLD, "0"),
        Communicator(1, tensor, 4, f"tp{pipeline}.{stage}"),
        Communicator(2, stage, 2, f"pp{pipeline}.{tensor}"),
    )
    flying: tuple[Op, ...] = ()
    if waits_in is not None:
        start_ns = 100 * SECOND - round(age_s * SECOND)
        flying = (Op("allreduce", OpKind.COLLECTIVE, 3, waits_in, 4, 9, start_ns),)
    hook = HookState(
        pid=1, start_ticks=1, rank=rank, local_rank=0, world_size=WORLD, now_ns=100 * SECOND,
        boot_to_unix_ns=0, started=4, finished=3, last_finish_ns=1, in_flight=flying,
        communicators=groups,
    )  # fmt: skip
    return RankView(rank, "n", 10 + rank, alive, hook=hook)


def mates(*views: RankView, asked: RankSet = NOBODY, count: int = 1000) -> list[int]:
    return list(group_mates(views, WORLD, asked, count))


def test_the_other_members_of_a_group_in_which_a_rank_waits() -> None:
    assert mates(view(9, TENSOR)) == [8, 10, 11]


def test_how_far_apart_members_are_is_seen_on_other_groups_of_that_kind() -> None:
    # Ranks 1 and 5 are the two stages of another pipeline.
    seen = view(1, None), view(5, None)
    assert mates(*seen, view(14, PIPELINE)) == [10]
    assert mates(*seen, view(10, PIPELINE)) == [14]


def test_who_is_known_or_asked_for_is_not_listed_again() -> None:
    assert mates(view(9, TENSOR), view(8, None), asked=RankSet.of([11])) == [10]


def test_whom_others_have_waited_for_longest_comes_first() -> None:
    young, old = view(20, TENSOR, age_s=5.0), view(41, TENSOR, age_s=50.0)
    assert mates(young, old, count=4) == [40, 42, 43]


def test_two_operations_that_began_together_are_both_followed() -> None:
    first, second = view(9, TENSOR), view(9, PIPELINE)
    assert first.hook is not None
    assert second.hook is not None
    flying = (*first.hook.in_flight, *second.hook.in_flight)
    both = replace(first, hook=replace(first.hook, in_flight=flying))
    assert mates(view(1, None), view(5, None), both) == [8, 10, 11, 13]


def test_the_whole_job_and_ranks_that_are_gone_lead_to_nobody() -> None:
    assert mates(view(9, WHOLE)) == []
    assert mates(view(9, TENSOR, alive=False)) == []
    assert mates(view(9, None)) == []


def test_what_would_lie_outside_of_the_job_is_no_rank() -> None:
    edge = RankView(WORLD - 1, "n", 1, alive=True, hook=view(60, TENSOR).hook)
    assert mates(edge) == []
