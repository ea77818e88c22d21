"""The controller and ranks that say nothing, for a while or for ever: no step is lost to these."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relkit.ttp.actions import Limits, Phase, Send
from relkit.ttp.controller import Controller
from relkit.ttp.messages import (
    Commit,
    Heartbeat,
    Hello,
    Saved,
    State,
)
from relkit.ttp.plan import SavePlan, Survivor
from relkit.ttp.replicas import ReplicaMap, replica_map
from relkit.ttp.save_outcome import EXIT_REFUSED, EXIT_SAVE_FAILED, EXIT_SAVED
from relkit.ttp.save_round import SaveRound
from tests.ttp.jobs.simulated_ranks import TP2_DP2, Job, dp, ended


@pytest.mark.parametrize("silent", [False, True], ids=["beats", "silent"])
def test_the_last_holder_is_waited_for(silent: bool) -> None:
    """It was given up after 5.3 s, and with it every step since the last periodic checkpoint."""
    job = Job(TP2_DP2, 4, deaths={0: 3.0}, slow={2: 40.0})
    if silent:
        job = Job(TP2_DP2, 4, deaths={0: 3.0}, silent={2: 3.01}, wakes={2: 43.0})
    outcome = ended(job)
    assert (outcome.code, outcome.dead) == (EXIT_SAVED, (0,))
    assert 39 < outcome.duration_s < 42
    assert job.killed == set()


def test_the_last_holder_is_waited_for_until_the_end_of_all_time() -> None:
    job = Job(TP2_DP2, 4, deaths={0: 3.0}, slow={2: 1000.0}, limits=Limits(overall_s=60.0))
    outcome = ended(job)
    assert outcome.code == EXIT_REFUSED
    assert outcome.sentence == (
        "shard 0 of group tp0 pp0 has no holder at step 5: rank 0 is gone, rank 2 is gone"
    )
    assert 60 < outcome.duration_s < 62
    assert job.killed == {2}
    assert job.discarded == 1


def test_a_rank_that_is_not_needed_is_given_up_after_seconds() -> None:
    outcome = ended(Job(dp(4), 4, deaths={0: 3.0}, slow={1: 40.0}))
    assert (outcome.code, outcome.dead) == (EXIT_SAVED, (0, 1))
    assert outcome.duration_s < 6


def test_a_silent_rank_that_the_others_can_do_without_is_not_waited_for() -> None:
    # Silence alone has begun the fault: no further wait for its state.
    outcome = ended(Job(dp(4), 4, silent={1: 2.0}, limits=Limits(state_s=50.0)))
    assert (outcome.code, outcome.dead) == (EXIT_SAVED, (1,))
    assert outcome.duration_s < 1


def test_the_only_holder_falls_silent_while_it_saves() -> None:
    maps = (replica_map("tp0", (0,), copies=1), replica_map("tp1", (1,), copies=1))
    job = Job(maps, 2, silent={1: 3.15}, wakes={1: 30.0}, delays=(0.1,))
    outcome = ended(job, (3.0, "hang"))
    assert (outcome.code, outcome.dead) == (EXIT_SAVED, ())
    assert outcome.epochs > 1


def groups(count: int, size: int) -> tuple[ReplicaMap, ...]:
    return tuple(replica_map(f"g{g}", range(g * size, (g + 1) * size)) for g in range(count))


def test_who_fell_silent_after_its_answer_has_no_part_where_others_can_do_without() -> None:
    """Rank 6 had answered; the plan relied on it until all of the time for a save was over."""
    job = Job(groups(2, 6), 12, deaths={0: 2.5, 1: 2.25}, silent={2: 2.25, 6: 2.5}, delays=(0.0,))
    outcome = ended(job)
    assert outcome.code == EXIT_SAVED
    assert outcome.duration_s < 10


def test_who_fell_silent_after_its_answer_and_is_needed_is_named() -> None:
    job = Job(groups(2, 4), 8, deaths={2: 2.25, 4: 2.5}, silent={0: 2.5, 1: 2.25}, delays=(0.0,))
    outcome = ended(job)
    assert outcome.code == EXIT_SAVE_FAILED
    assert outcome.sentence == "not done 120 s after the fault: rank 0 is gone"


def test_a_newer_step_is_worth_waiting_for_who_fell_silent() -> None:
    """The other is a step behind it, and cannot make that step alone."""
    save = SaveRound(1)
    save.states = {0: Survivor(0, 7), 1: Survivor(1, 8)}
    plan = save.make_plan(dp(2), silent={1})
    assert isinstance(plan, SavePlan)
    assert (plan.step, plan.ranks) == (8, (1,))


def test_the_last_rank_is_not_ended_for_its_silence_while_it_commits() -> None:
    job = Job(dp(2), 2, deaths={0: 3.0}, silent={1: 3.055}, wakes={1: 20.0})
    outcome = ended(job)
    assert (outcome.code, outcome.step) == (EXIT_SAVED, 5)
    assert job.killed == set()


def test_the_last_rank_that_stays_silent_while_it_commits_is_named() -> None:
    outcome = ended(Job(dp(2), 2, deaths={0: 3.0}, silent={1: 3.055}))
    assert outcome.code == EXIT_SAVE_FAILED
    assert outcome.sentence == "not done 120 s after the fault: rank 1 is gone"


def test_who_fell_silent_after_it_saved_does_not_commit() -> None:
    controller = Controller(4)
    for rank in range(4):
        controller.received(Hello(rank, 4, 100 + rank, "h", 5, TP2_DP2), 0.0)
    controller.lost(3, "rank 3 was killed", 1.0)
    controller.tick(1.1)
    for rank in range(3):
        controller.received(State(rank, 1, Survivor(rank, 5)), 1.2)
    assert controller.phase is Phase.SAVING
    controller.received(Saved(0, 1, {"0.pt": ("00", 1)}), 1.3)
    for second in range(2, 7):
        for rank in (1, 2):
            controller.received(Heartbeat(rank, 5, "parked", 0.1), float(second))
        controller.tick(float(second))
    assert controller.members.suspects == {0}
    sent = [
        action
        for rank in (1, 2)
        for action in controller.received(Saved(rank, 1, {f"{rank}.pt": ("00", 1)}), 7.0)
    ]
    (commit,) = [each for each in sent if isinstance(each, Send)]
    assert isinstance(commit.message, Commit)
    assert commit.ranks == (1,)


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 4), st.booleans(), st.data())
def test_no_step_is_lost_to_a_rank_that_is_only_slow(
    size: int, two: bool, data: st.DataObject
) -> None:
    """One death, and any number of ranks that say nothing for up to a minute."""
    maps = groups(2 if two else 1, size)
    world = size * len(maps)
    victim = data.draw(st.integers(0, world - 1))
    silent = data.draw(st.dictionaries(st.integers(0, world - 1), st.floats(2.0, 4.0)))
    wakes = {rank: data.draw(st.floats(4.0, 60.0)) for rank in silent}
    job = Job(maps, world, deaths={victim: 3.0}, silent=silent, wakes=wakes)
    assert ended(job).code == EXIT_SAVED


@settings(max_examples=300, deadline=None)
@given(st.integers(2, 6), st.booleans(), st.data())
def test_any_storm_ends_in_time_and_rightly(size: int, two: bool, data: st.DataObject) -> None:
    """Random deaths and silences at random times, with random delays of every answer."""
    maps = groups(2 if two else 1, size)
    world = size * len(maps)
    moments = st.floats(2.0, 2.6)
    victims = st.dictionaries(st.integers(0, world - 1), moments, max_size=world)
    deaths, silent = data.draw(victims), data.draw(victims)
    delays = data.draw(st.lists(st.floats(0.0, 0.2), min_size=1, max_size=7))
    job = Job(maps, world, deaths=deaths, silent=silent, delays=delays)
    outcome = job.run()
    if not deaths and not silent:
        assert outcome is None
        return
    assert outcome is not None
    gone = {rank for rank, when in deaths.items() if when <= job.now_s} | set(silent) | job.killed
    survivable = all(set(held_by) - gone for m in maps for held_by in m.holders)
    if survivable:
        assert outcome.code == EXIT_SAVED, outcome
    if outcome.code == EXIT_SAVED:
        # Every shard came from a holder that was alive when it gave it.
        assert outcome.step == 5
        assert outcome.folder
    else:
        assert outcome.code == EXIT_REFUSED or "gone" in outcome.sentence, outcome
    # Only a last holder that never says anything is worth the whole time.
    assert outcome.duration_s < (30 if survivable else job.limits.overall_s + 2)
