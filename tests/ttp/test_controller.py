"""The controller against simulated ranks in simulated time: it always ends, and ends rightly."""

from __future__ import annotations

import pytest

from relkit.ttp.actions import Action, Limits, Log, Over, Phase, Send
from relkit.ttp.controller import Controller
from relkit.ttp.messages import (
    Commit,
    Done,
    Exit,
    FaultNotice,
    Heartbeat,
    Hello,
    Message,
    Pause,
    Raised,
    SaveFailed,
    State,
)
from relkit.ttp.plan import Survivor
from relkit.ttp.replicas import replica_map
from relkit.ttp.save_outcome import EXIT_REFUSED, EXIT_SAVE_FAILED, EXIT_SAVED
from tests.ttp.jobs.simulated_ranks import TP2_DP2, Job, dp, ended


def test_a_healthy_job_is_left_alone() -> None:
    job = Job(dp(4), 4)
    assert job.run(until_s=60.0) is None
    assert job.controller.phase is Phase.NORMAL
    assert job.sent == []


def test_a_kill_is_dumped_and_everybody_is_told_the_code() -> None:
    job = Job(dp(4), 4, deaths={2: 3.0})
    outcome = ended(job)
    assert (outcome.code, outcome.step, outcome.dead) == (EXIT_SAVED, 5, (2,))
    assert outcome.reason == "rank 2 was killed by SIGKILL"
    assert outcome.duration_s < 0.2
    assert job.codes == dict.fromkeys((0, 1, 3), EXIT_SAVED)


def test_deaths_of_one_cause_are_one_fault() -> None:
    outcome = ended(Job(dp(6), 6, deaths={0: 3.0, 1: 3.01, 2: 3.02}))
    assert (outcome.code, outcome.epochs, outcome.dead) == (EXIT_SAVED, 1, (0, 1, 2))


def test_the_one_left_behind_in_the_barrier_rolls_forward() -> None:
    job = Job(dp(4), 4, deaths={3: 3.0}, steps={0: 8, 1: 7, 2: 8, 3: 7}, ready=frozenset({1}))
    assert ended(job).step == 8
    assert job.steps[1] == 8


def test_a_death_in_the_dump_is_planned_again() -> None:
    job = Job(dp(4), 4, deaths={3: 3.0, 0: 3.1}, delays=(0.04,))
    outcome = ended(job)
    assert (outcome.code, outcome.epochs, outcome.dead) == (EXIT_SAVED, 2, (0, 3))


def test_a_death_after_the_last_holder_is_refused_and_nothing_is_left() -> None:
    job = Job(dp(4), 4, deaths={3: 3.0, 1: 3.1}, delays=(0.04,))
    outcome = ended(job)
    assert outcome.code == EXIT_REFUSED
    assert "shard 1 of group tp0 pp0" in outcome.sentence
    assert job.discarded == 1


def test_the_committing_rank_dies_and_another_takes_over() -> None:
    maps = (replica_map("tp0", (0, 2)), replica_map("tp1", (1, 3)))
    # The states come at 3.13, the files at 3.23; rank 0 dies with the renaming in its hands.
    job = Job(maps, 4, deaths={2: 3.0, 0: 3.25}, delays=(0.1,))
    outcome = ended(job)
    assert (outcome.code, outcome.epochs) == (EXIT_SAVED, 1)
    commits = [sent.ranks for sent in job.sent if isinstance(sent.message, Commit)]
    assert commits == [(0,), (1,)]


def test_a_stopped_rank_is_found_by_its_silence_and_killed() -> None:
    job = Job(dp(4), 4, silent={1: 2.0})
    outcome = ended(job)
    assert outcome.code == EXIT_SAVED
    assert job.killed == {1}
    assert outcome.reason == "rank 1 was silent for 3 s"


def test_a_hang_frees_everybody_and_kills_who_does_not_answer() -> None:
    # One heartbeat before the hang is seen: silence alone would take longer.
    job = Job(dp(4), 4, silent={1: 2.9}, limits=Limits(missed_heartbeats=60))
    outcome = ended(job, (3.0, "hang"))
    assert outcome.code == EXIT_SAVED
    assert job.killed == {1}


def test_a_hang_that_ends_when_freed_kills_nobody() -> None:
    job = Job(dp(4), 4)
    assert ended(job, (3.0, "hang")).code == EXIT_SAVED
    assert job.killed == set()


def test_an_exception_is_a_fault_but_its_rank_is_a_holder() -> None:
    outcome = ended(Job(dp(2), 2, deaths={0: 3.005}), (3.0, Raised(1, "ValueError: bad sample")))
    assert outcome.code == EXIT_SAVED
    assert outcome.reason == "rank 1 raised ValueError: bad sample"


def test_a_request_to_stop_pauses_at_a_later_step_without_a_fault() -> None:
    job = Job(dp(4), 4)
    assert ended(job, (3.0, "stop")).code == EXIT_SAVED
    pause = job.sent[0].message
    assert isinstance(pause, Pause)
    assert pause.at_step > 5
    assert not any(isinstance(sent.message, FaultNotice) for sent in job.sent)


@pytest.mark.parametrize(("seconds", "is_fault"), [(50, False), (70, True)])
def test_ranks_whose_steps_have_become_slow_are_given_time_to_pause(
    seconds: int, is_fault: bool
) -> None:
    controller = Controller(2)
    for rank in range(2):
        controller.received(Hello(rank, 2, 100 + rank, "h", 5, dp(2)), 0.0)
    controller.stop("SIGTERM", 1.0)
    actions: list[Action] = []
    for second in range(2, 2 + seconds):
        for rank in range(2):
            controller.received(Heartbeat(rank, 5 + second // 4, "forward", 4.0), float(second))
        actions += controller.tick(float(second))
    said = [action.sentence for action in actions if isinstance(action, Log)]
    words = "not all ranks paused in time: all ranks are stopped where they are"
    assert said == ([words] if is_fault else [])
    assert controller.phase is (Phase.COLLECTING if is_fault else Phase.PAUSING)
    assert controller.reason == "SIGTERM"


def test_ranks_that_come_to_no_pause_and_make_no_steps_are_stopped_by_a_fault() -> None:
    job = Job(dp(4), 4, slow={1: 30.0})
    assert ended(job, (3.0, "stop")).code == EXIT_SAVED
    (first,) = [sent.message for sent in job.sent if isinstance(sent.message, FaultNotice)]
    assert first.reason == "SIGTERM"
    assert job.now_s < 20.0


def test_a_death_while_pausing_is_a_fault() -> None:
    job = Job(dp(4), 4, deaths={2: 3.05}, delays=(0.2,))
    assert ended(job, (3.0, "stop")).dead == (2,)
    assert any(isinstance(sent.message, FaultNotice) for sent in job.sent)


@pytest.mark.parametrize(
    ("failed", "code"),
    [
        (SaveFailed(0, 0, "no space left on device"), EXIT_SAVE_FAILED),
        (SaveFailed(0, 0, "shard 0 of tp0 pp0 is not finite", refused=True), EXIT_REFUSED),
        (SaveFailed(0, 0, "connection closed", peer=True), EXIT_SAVE_FAILED),
    ],
    ids=["disk", "nan", "peer"],
)
def test_a_save_that_fails_leaves_nothing_and_says_why(failed: SaveFailed, code: int) -> None:
    job = Job(dp(4), 4, deaths={2: 3.0}, save_fails={0: failed})
    outcome = ended(job)
    assert outcome.code == code
    assert outcome.sentence == f"rank 0: {failed.sentence}"
    assert job.discarded == 1


def test_a_fault_before_everybody_has_begun_is_refused() -> None:
    controller = Controller(2)
    controller.received(Hello(0, 2, 1, "h", 0, dp(2)), 0.0)
    actions = controller.lost(1, "rank 1 exited with code 1", 1.0)
    over = actions[-1]
    assert isinstance(over, Over)
    assert over.outcome.code == EXIT_REFUSED


def test_a_rank_that_begins_when_all_is_over_is_told_to_end() -> None:
    controller = Controller(3)
    controller.received(Hello(0, 3, 1, "h", 0, dp(3)), 0.0)
    controller.lost(1, "rank 1 was killed", 0.1)
    (told,) = controller.received(Hello(2, 3, 3, "h", 0, dp(3)), 0.2)
    sentence = "rank 1 was killed; not every rank had begun"
    assert told == Send((2,), Exit(EXIT_REFUSED, sentence))
    assert controller.received(Hello(1, 3, 2, "h", 0, dp(3)), 0.3) == ()


def test_a_job_that_ends_well_is_not_a_fault() -> None:
    job = Job(dp(2), 2)
    ends: list[tuple[float, Message | str]] = [(3.0, Done(0)), (3.0, Done(1))]
    assert job.run(*ends, until_s=30.0) is None
    assert not job.controller.lost(0, "link ended", 31.0)


def test_answers_to_an_old_plan_are_not_heard() -> None:
    controller = Controller(2, Limits(settle_s=0.0))
    for rank in range(2):
        controller.received(Hello(rank, 2, 1, "h", 3, dp(2)), 0.0)
    controller.hung("hang", 1.0)
    controller.tick(1.0)
    assert controller.epoch == 1
    for rank in range(2):
        controller.received(State(rank, 0, Survivor(rank, 3)), 1.0)
    assert controller.phase is Phase.COLLECTING


def test_a_backup_needs_more_than_half() -> None:
    for present, code in ((2, EXIT_REFUSED), (3, None)):
        controller = Controller(4, backup=True)
        for rank in range(present):
            controller.received(Hello(rank, 4, 1, "h", 3, dp(4)), 0.0)
        # A sixth of the time for everything, where those that are there cannot decide.
        actions = controller.tick(4.1 if code is None else 20.1)
        over = [a.outcome.code for a in actions if isinstance(a, Over)]
        assert over == ([code] if code else [])
        if code is None:
            assert controller.phase is Phase.COLLECTING
            assert controller.dead == {3}


def test_a_backup_waits_for_a_majority_that_is_late() -> None:
    """On a busy machine ranks came after 4 s, and the step was lost."""
    controller = Controller(4, backup=True)
    for rank in range(2):
        controller.received(Hello(rank, 4, 1, "h", 3, dp(4)), 0.0)
    for now_s in (4.1, 10.0, 19.0):
        assert not controller.tick(now_s)
    controller.received(Hello(2, 4, 1, "h", 3, dp(4)), 19.1)
    controller.tick(19.5)
    assert controller.phase is Phase.COLLECTING
    assert controller.dead == {3}


def test_a_backup_waits_for_a_holder_of_everything() -> None:
    """A majority without the last holder of a shard could only refuse."""
    controller = Controller(4, backup=True)
    for rank in (0, 2):
        controller.received(Hello(rank, 4, 1, "h", 3, TP2_DP2[:1]), 0.0)
    pair = (replica_map("tp1 pp0", (1,), copies=1), replica_map("tp2 pp0", (3,), copies=1))
    controller.received(Hello(1, 4, 1, "h", 3, pair[:1]), 0.0)
    assert not controller.tick(4.1)
    assert not controller.dead
    # Nobody has told of rank 3's group, nor does anybody until time is over.
    controller.tick(20.1)
    assert controller.phase is Phase.COLLECTING
    assert controller.dead == {3}


# Ranks 0 and 2 hold all of one tensor-parallel half, 1 and 3 all of the other.
