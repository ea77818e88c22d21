"""A stall is suspected within 15 s, of the right rank; what is usual in this job is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relkit.hang.model import JobView, Manner
from relkit.hang.suspicion.limits import FLOOR_S
from relkit.hang.suspicion.watch import PACE_S, Turn, What
from relkit.ranks import RankSet
from tests.unit.hang.suspicion.loops import Loop

STEADY = 30
ENOUGH_S = 15.0


def running(**facts: float) -> Loop:
    """A job whose operations have been short so far."""
    loop = Loop(**facts)  # type: ignore[arg-type]
    loop.step(times=STEADY)
    return loop


def begun(loop: Loop) -> Turn:
    (turn,) = loop.said(What.BEGAN)
    return turn


def test_a_rank_that_does_not_come_is_named_within_15_s_of_its_stall() -> None:
    loop = running()
    stalled_s = loop.now_s
    loop.wait_in([0, 1, 3])
    loop.pause(ENOUGH_S)
    (at_s, turn) = loop.turns[0]
    assert FLOOR_S < at_s - stalled_s <= ENOUGH_S
    assert turn.suspicion.ranks == RankSet.of([2])
    assert turn.suspicion.sentence == (
        "rank 2 has not joined all_reduce #30 of the default group for 11 s (so far at most 1.0 s)"
        "; frozen: no operation and no CPU time in 5 s"
    )
    assert len(loop.turns) == 1


def test_it_is_over_when_the_rank_goes_on_and_is_counted_once() -> None:
    loop = running()
    loop.stall(2, 23)
    assert [turn.what for _, turn in loop.turns] == [What.BEGAN, What.WENT_ON]
    over = loop.turns[-1][1]
    assert (over.suspicion.ranks, over.is_counted) == (RankSet.of([2]), True)
    assert over.suspicion.stalled_s == pytest.approx(23, abs=1)
    assert loop.watch.present == ()


def test_a_hang_makes_it_a_verdict_once_and_what_follows_is_not_counted() -> None:
    loop = running(timeout_s=40.0)
    loop.stall(2, 60)
    assert [(turn.what, turn.is_counted) for _, turn in loop.turns] == [
        (What.BEGAN, True),
        (What.VERDICT, True),
        (What.WENT_ON, False),
    ]
    assert loop.turns[1][1].suspicion.stalled_s == pytest.approx(41, abs=1)


@pytest.mark.parametrize(
    ("letter", "cpu", "waits", "manner", "words"),
    [
        ("S", 0.0, 0.0, Manner.FROZEN, "frozen: no operation and no CPU time in 5 s"),
        ("T", 0.0, 0.0, Manner.FROZEN, "no CPU time in 5 s, stopped by a signal"),
        ("D", 0.0, 0.0, Manner.FROZEN, "in an uninterruptible kernel wait"),
        ("R", 0.99, 0.0, Manner.SPINNING, "spinning: no operation in 5 s, 99% of a core"),
        ("R", 0.3, 0.7, Manner.SPINNING, "spinning: no operation in 5 s, 30% of a core"),
        (
            "R",
            0.02,
            0.9,
            Manner.WAITING_FOR_CPU,
            "waiting for a CPU: no operation in 5 s, ready to run for 90% of that",
        ),
    ],
)
def test_two_looks_show_what_the_rank_does(
    letter: str, cpu: float, waits: float, manner: Manner, words: str
) -> None:
    loop = running()
    stuck = loop.ranks[1]
    stuck.letter, stuck.cpu, stuck.waits = letter, cpu, waits
    loop.wait_in([0, 2, 3])
    loop.pause(ENOUGH_S)
    assert begun(loop).suspicion.manner is manner
    assert words in begun(loop).suspicion.sentence


def test_a_rank_that_computes_is_moving() -> None:
    loop = running()
    loop.wait_in([0, 2, 3])
    for _ in range(int(ENOUGH_S)):
        loop.ranks[1].products += 10
        loop.look()
    assert begun(loop).suspicion.manner is Manner.MOVING
    assert "moving: 100 calls begun or ended in 5 s" in begun(loop).suspicion.sentence


def test_the_newest_look_is_what_a_verdict_gets() -> None:
    loop = running()
    loop.ranks[1].cpu = 0.9
    loop.wait_in([0, 2, 3])
    loop.pause(ENOUGH_S)
    loop.ranks[1].cpu = 0.0
    loop.pause(3 * PACE_S)
    (present,) = loop.watch.present
    assert present.manner is Manner.FROZEN
    assert present.stalled_s == pytest.approx(ENOUGH_S + 3 * PACE_S, abs=1)


def test_ranks_that_are_late_together_share_one_suspicion() -> None:
    loop = running()
    loop.wait_in([0, 3])
    loop.pause(ENOUGH_S)
    assert begun(loop).suspicion.ranks == RankSet.of([1, 2])
    assert begun(loop).suspicion.sentence.startswith("ranks 1-2 have not joined all_reduce #30")


def test_a_job_with_nobody_in_an_operation_is_suspected_as_a_whole() -> None:
    loop = running()
    loop.pause(ENOUGH_S)
    suspicion = begun(loop).suspicion
    assert suspicion.ranks == RankSet.world(4)
    assert suspicion.sentence.startswith("ranks 0-3 have finished no operation for 11 s (so far")


def test_where_all_have_come_nobody_is_named() -> None:
    loop = running()
    loop.wait_in(range(4))
    loop.pause(ENOUGH_S)
    suspicion = begun(loop).suspicion
    assert suspicion.ranks == RankSet()
    assert "ranks 0-3 are in all_reduce #30 of the default group for 11 s" in suspicion.sentence
    assert "no rank is late" in suspicion.sentence
    loop.step()
    assert loop.turns[-1][1].what is What.WENT_ON


def test_another_rank_that_stalls_meanwhile_is_another_suspicion() -> None:
    loop = running()
    loop.wait_in([0, 2, 3])
    loop.pause(ENOUGH_S)
    # Rank 1 has come and gone on to the next operation; rank 3 has not.
    for number in (0, 1, 2):
        rank = loop.ranks[number]
        rank.seq, rank.since_s = 31, loop.now_s
        rank.finish_s = loop.now_s
    loop.ranks[3].since_s, loop.ranks[3].finish_s = None, loop.now_s
    # Longer than the wait for rank 1 was.
    loop.pause(2 * ENOUGH_S)
    assert [(turn.what, turn.suspicion.ranks.fold()) for _, turn in loop.turns] == [
        (What.BEGAN, "1"),
        (What.WENT_ON, "1"),
        (What.BEGAN, "3"),
    ]


def test_who_goes_on_while_another_holds_up_the_job_is_suspected_no_more() -> None:
    loop = running()
    loop.wait_in([0, 2, 3])
    loop.pause(ENOUGH_S)
    assert loop.watch.present[0].ranks == RankSet.of([1])
    closer, late = loop._closer, loop.ranks[1]

    def without_rank_3() -> JobView:
        job = closer()
        ranks = list(job.ranks)
        ranks[1], ranks[3] = replace(ranks[1], hook=ranks[0].hook), replace(ranks[3], hook=None)
        return replace(job, ranks=tuple(ranks))

    # A larger job: what was overdue still is, and rank 1 computes again.
    loop._closer = without_rank_3  # type: ignore[method-assign]
    late.products += 1
    loop.pause(PACE_S)
    assert [(turn.what, turn.suspicion.ranks.fold()) for _, turn in loop.turns] == [
        (What.BEGAN, "1"),
        (What.BEGAN, "3"),
        (What.WENT_ON, "1"),
    ]


def test_a_first_step_that_compiles_for_a_minute_is_not_suspected_and_then_forgotten() -> None:
    loop = Loop()
    loop.step(times=2)
    loop.stall(0, 60)
    loop.step(times=STEADY)
    assert loop.turns == []
    loop.wait_in([0, 1, 3])
    loop.pause(ENOUGH_S)
    assert begun(loop).suspicion.ranks == RankSet.of([2])


def test_an_evaluation_every_50_steps_is_suspected_once() -> None:
    loop = running()
    for _ in range(6):
        loop.step(times=50)
        # All compute on their own, without a recorded call.
        loop.pause(40)
    assert len(loop.said(What.BEGAN)) == 1
    # What rank 2 holds up is not the evaluation.
    loop.step(times=5)
    loop.wait_in([0, 1, 3])
    loop.pause(ENOUGH_S)
    assert loop.said(What.BEGAN)[-1].suspicion.ranks == RankSet.of([2])


def test_a_checkpoint_of_rank_0_is_learned_by_its_own_kind_of_operation() -> None:
    loop = running()
    for _ in range(5):
        loop.step(times=20)
        loop.stall(0, 30, name="barrier", size=0)
    assert [turn.what for _, turn in loop.turns] == [What.BEGAN, What.WENT_ON]
    assert loop.turns[0][1].suspicion.ranks == RankSet.of([0])
    loop.step(times=5)
    loop.wait_in([0, 1, 3])
    loop.pause(ENOUGH_S)
    assert loop.said(What.BEGAN)[-1].suspicion.ranks == RankSet.of([2])


def test_long_steps_are_usual_in_a_job_of_long_steps() -> None:
    loop = Loop()
    for _ in range(20):
        loop.pause(30)
        loop.step()
    assert loop.turns == []
    # Twice as long is not: but three times the usual is.
    loop.pause(60)
    loop.step()
    assert loop.turns == []
    loop.pause(130)
    assert begun(loop).suspicion.ranks == RankSet.world(4)


def test_bursts_are_no_reason() -> None:
    loop = Loop()
    for _ in range(20):
        loop.step(times=5)
        loop.pause(8)
    assert loop.turns == []


def test_a_job_that_is_paused_is_not_suspected() -> None:
    loop = running()
    for rank in loop.ranks:
        rank.letter = "T"
    loop.pause(60)
    assert loop.turns == []


def test_a_suspicion_outlives_a_pause_of_the_job() -> None:
    loop = running()
    loop.wait_in([0, 1, 3])
    loop.pause(ENOUGH_S)
    for rank in loop.ranks:
        rank.letter = "T"
    loop.pause(60)
    assert [turn.what for _, turn in loop.turns] == [What.BEGAN]
    for rank in loop.ranks:
        rank.letter = "S"
    loop.step()
    over = loop.turns[-1][1]
    # The pause is not part of the stall.
    assert over.what is What.WENT_ON
    assert over.suspicion.stalled_s == pytest.approx(ENOUGH_S, abs=2)


def test_a_rank_that_called_something_else_is_said_to_have_done_that() -> None:
    loop = running()
    loop.wait_in([0, 1, 3])
    loop.wait_in([2], name="broadcast")
    loop.pause(ENOUGH_S)
    suspicion = begun(loop).suspicion
    assert suspicion.ranks == RankSet.of([2])
    assert suspicion.sentence.startswith("rank 2: called broadcast as #30")
    assert "; the job stalls for 11 s (so far at most 1.0 s); frozen" in suspicion.sentence


def test_a_healthy_job_is_never_looked_at_more_closely() -> None:
    loop = running()
    loop.step(times=200)
    assert loop.judged == 0
    loop.wait_in([0, 1, 3])
    loop.pause(60)
    # Once it is suspected, every five seconds.
    assert loop.judged <= 60 / PACE_S


durations = st.lists(st.floats(0.2, 60.0), min_size=1, max_size=25)


@pytest.mark.long
@settings(deadline=None, max_examples=60)
@given(durations, st.integers(0, 3))
def test_nothing_below_the_floor_is_ever_suspected(pauses: list[float], culprit: int) -> None:
    loop = running()
    for pause_s in pauses:
        before = len(loop.said(What.BEGAN))
        loop.stall(culprit, pause_s)
        if pause_s <= FLOOR_S:
            assert len(loop.said(What.BEGAN)) == before
        loop.step(times=3)
    assert len(loop.said(What.BEGAN)) == len(loop.said(What.WENT_ON))


@pytest.mark.long
@pytest.mark.timeout(180)  # a second an example on a machine with a load of 20
@settings(deadline=None, max_examples=60)
@given(st.floats(FLOOR_S + 1, 200.0), st.integers(0, 3), st.integers(1, 60))
def test_what_came_and_went_is_not_suspected_again_at_that_length(
    pause_s: float, culprit: int, steps: int
) -> None:
    loop = running()
    for _ in range(4):
        loop.stall(culprit, pause_s)
        loop.step(times=steps)
    assert len(loop.said(What.BEGAN)) <= 1
