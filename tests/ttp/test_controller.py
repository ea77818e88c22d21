"""The controller against simulated ranks in simulated time: it always ends, and ends rightly."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relkit.ttp.actions import Action, Kill, Limits, Over, Phase, Send
from relkit.ttp.controller import Controller
from relkit.ttp.messages import (
    Commit,
    Committed,
    Discard,
    Done,
    Exit,
    FaultNotice,
    Heartbeat,
    Hello,
    Message,
    Pause,
    Raised,
    Save,
    Saved,
    SaveFailed,
    State,
)
from relkit.ttp.plan import Survivor
from relkit.ttp.replicas import ReplicaMap, replica_map
from relkit.ttp.save_outcome import EXIT_REFUSED, EXIT_SAVE_FAILED, EXIT_SAVED, SaveOutcome


@dataclass
class Job:
    """Ranks that answer as real ones would, after the delays they are given.

    Args:
        deaths: rank -> when it dies; silent: rank -> from when on it says nothing.
        wakes: rank -> when one that is silent goes on; it answers then what it was sent meanwhile.
        delays: how long each answer takes, used in turn; slow: rank -> how long its states take.
    """

    maps: tuple[ReplicaMap, ...]
    size: int
    deaths: dict[int, float] = field(default_factory=dict)
    silent: dict[int, float] = field(default_factory=dict)
    wakes: dict[int, float] = field(default_factory=dict)
    slow: dict[int, float] = field(default_factory=dict)
    delays: Sequence[float] = (0.01,)
    steps: dict[int, int] = field(default_factory=dict)
    ready: frozenset[int] = frozenset()
    save_fails: dict[int, SaveFailed] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self.controller = Controller(self.size, self.limits)
        self.now_s = 0.0
        self.killed: set[int] = set()
        self.outcome: SaveOutcome | None = None
        self.sent: list[Send] = []
        self.discarded = 0
        self.codes: dict[int, int] = {}
        self._queue: list[tuple[float, int, int, Message | str]] = []
        self._count = 0

    def run(
        self, *events: tuple[float, Message | str], until_s: float = 400.0
    ) -> SaveOutcome | None:
        """Register everybody, let things happen, and see how it ends."""
        for rank in range(self.size):
            maps = tuple(m for m in self.maps if rank in m.ranks)
            self._at(0.0, rank, Hello(rank, self.size, 100 + rank, "h", self._step(rank), maps))
        for rank, when in self.deaths.items():
            self._at(when, rank, "dies")
        for when, event in events:
            self._at(when, getattr(event, "rank", -1), event)
        beat = 0.0
        while self.outcome is None and self.now_s < until_s:
            due = self.now_s + self.controller.wait_s(self.now_s)
            if self._queue and self._queue[0][0] <= due:
                self.now_s, _, rank, event = heapq.heappop(self._queue)
                self._happens(rank, event)
            else:
                self.now_s = due
            if self.now_s >= beat:
                beat = self.now_s + self.limits.heartbeat_s
                for rank in range(self.size):
                    if self._speaks(rank):
                        self._do(self.controller.received(self._beat(rank), self.now_s))
            self._do(self.controller.tick(self.now_s))
        return self.outcome

    def _beat(self, rank: int) -> Heartbeat:
        return Heartbeat(rank, self._step(rank), "reduce", 0.1)

    def _step(self, rank: int) -> int:
        return self.steps.get(rank, 5)

    def _speaks(self, rank: int) -> bool:
        dead = self.now_s >= self.deaths.get(rank, 1e9) or rank in self.killed
        from_s, until_s = self.silent.get(rank, 1e9), self.wakes.get(rank, 1e9)
        return not dead and not from_s <= self.now_s < until_s

    def _at(self, when_s: float, rank: int, event: Message | str) -> None:
        self._count += 1
        heapq.heappush(self._queue, (when_s, self._count, rank, event))

    def _happens(self, rank: int, event: Message | str) -> None:
        if event == "dies":
            reason = f"rank {rank} was killed by SIGKILL"
            self._do(self.controller.lost(rank, reason, self.now_s))
        elif event == "stop":
            self._do(self.controller.stop("SIGTERM", self.now_s))
        elif event == "hang":
            self._do(self.controller.hung("the job hangs", self.now_s))
        elif not isinstance(event, str) and self._speaks(rank):
            self._do(self.controller.received(event, self.now_s))
        elif not isinstance(event, str) and rank in self.wakes and self.now_s < self.wakes[rank]:
            self._at(self.wakes[rank], rank, event)

    def _do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self.sent.append(action)
                for rank in action.ranks:
                    self._receives(rank, action.message)
            elif isinstance(action, Kill):
                self.killed.add(action.rank)
            elif isinstance(action, Over):
                assert self.outcome is None
                self.outcome = action.outcome

    def _receives(self, rank: int, message: Message) -> None:
        answer: Message | None = None
        if isinstance(message, FaultNotice | Pause):
            survivor = Survivor(rank, self._step(rank), ready=rank in self.ready)
            answer = State(rank, message.epoch, survivor)
        elif isinstance(message, Save):
            if rank in message.plan.roll_forward:
                self.steps[rank] = message.plan.step
            writes = any(group.writer == rank for group in message.plan.groups)
            files = {f"{rank}.pt": ("00", 1)} if writes else {}
            answer = Saved(rank, message.epoch, files)
            if rank in self.save_fails:
                failed = self.save_fails[rank]
                answer = SaveFailed(
                    rank, message.epoch, failed.sentence, failed.refused, failed.peer
                )
        elif isinstance(message, Commit):
            answer = Committed(rank, message.epoch, "iter_0000005")
        elif isinstance(message, Discard):
            self.discarded += 1
        elif isinstance(message, Exit):
            self.codes[rank] = message.code
        if answer is not None:
            delay_s = self.delays[self._count % len(self.delays)]
            if isinstance(answer, State):
                delay_s = self.slow.get(rank, delay_s)
            self._at(self.now_s + delay_s, rank, answer)


def dp(size: int) -> tuple[ReplicaMap, ...]:
    return (replica_map("tp0 pp0", range(size)),)


def ended(job: Job, *events: tuple[float, Message | str]) -> SaveOutcome:
    outcome = job.run(*events)
    assert outcome is not None
    assert job.controller.phase is Phase.OVER
    return outcome


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
    for second in range(2, 2 + seconds):
        for rank in range(2):
            controller.received(Heartbeat(rank, 5 + second // 4, "forward", 4.0), float(second))
        controller.tick(float(second))
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
TP2_DP2 = (replica_map("tp0 pp0", (0, 2)), replica_map("tp1 pp0", (1, 3)))


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


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 4), st.booleans(), st.data())
def test_no_step_is_lost_to_a_rank_that_is_only_slow(
    size: int, two: bool, data: st.DataObject
) -> None:
    """One death, and any number of ranks that say nothing for up to a minute."""
    groups = 2 if two else 1
    maps = tuple(replica_map(f"g{g}", range(g * size, (g + 1) * size)) for g in range(groups))
    world = size * groups
    victim = data.draw(st.integers(0, world - 1))
    silent = data.draw(st.dictionaries(st.integers(0, world - 1), st.floats(2.0, 4.0)))
    wakes = {rank: data.draw(st.floats(4.0, 60.0)) for rank in silent}
    job = Job(maps, world, deaths={victim: 3.0}, silent=silent, wakes=wakes)
    assert ended(job).code == EXIT_SAVED


@settings(max_examples=300, deadline=None)
@given(st.integers(2, 6), st.booleans(), st.data())
def test_any_storm_ends_in_time_and_rightly(size: int, two: bool, data: st.DataObject) -> None:
    """Random deaths and silences at random times, with random delays of every answer."""
    groups = 2 if two else 1
    maps = tuple(replica_map(f"g{g}", range(g * size, (g + 1) * size)) for g in range(groups))
    world = size * groups
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
