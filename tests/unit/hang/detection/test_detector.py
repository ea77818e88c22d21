"""When a job counts as hung: within the timeout plus one look when stuck, never while it moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relkit.hang.detection.detector import Detection, HangDetector, JobHealth
from relkit.hang.model import CpuUse, RankView, Sources
from relkit.hook.model import Communicator, HookState, Op, OpKind
from relkit.ranks import RankSet

TIMEOUT_S = 10.0
WORLD = 3


class Job:
    """Recorders of a small job whose clock the test moves."""

    def __init__(self, world: int = WORLD, boot_s: float = 500.0) -> None:
        self.now_s = 0.0
        self.world = world
        # Clocks of different hosts have nothing in common.
        self.boot_s = [boot_s + 1000.0 * rank for rank in range(world)]
        self.finished = [0] * world
        self.last_finish_s = [0.0] * world
        self.flight: list[tuple[str, float] | None] = [None] * world
        self.letters = ["S"] * world
        # Of each second: spent on a CPU, and spent waiting for one.
        self.cpu = [(0.0, 0.0)] * world
        self.alive = [True] * world
        self.generation = 0
        self.groups_made = 0

    def begin(self, ranks: Iterable[int], name: str = "allreduce") -> None:
        for rank in ranks:
            self.flight[rank] = (name, self.now_s)

    def finish(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            self.flight[rank] = None
            self.finished[rank] += 1
            self.last_finish_s[rank] = self.now_s

    def _ns(self, rank: int, at_s: float) -> int:
        return round((self.boot_s[rank] + at_s) * 1e9)

    def views(self) -> list[RankView]:
        return [
            RankView(
                rank,
                host="n0",
                pid=10 + rank + 100 * self.generation,
                alive=self.alive[rank],
                process_state=self.letters[rank],
                hook=self._state(rank),
                exit_code=None if self.alive[rank] else 0,
                cpu=CpuUse(2 * self.cpu[rank][0], 2.0, 2 * self.cpu[rank][1]),
            )
            for rank in range(self.world)
        ]

    def _state(self, rank: int) -> HookState | None:
        flight = self.flight[rank]
        if not self.finished[rank] and flight is None:
            return None
        ops: tuple[Op, ...] = ()
        if flight:
            seq = self.finished[rank]
            ops = (Op(flight[0], OpKind.COLLECTIVE, seq, 0, 4, 9, self._ns(rank, flight[1])),)
        return HookState(
            pid=10 + rank + 100 * self.generation, start_ticks=1, rank=rank, local_rank=rank,
            world_size=self.world, now_ns=self._ns(rank, self.now_s), boot_to_unix_ns=0,
            started=self.finished[rank] + len(ops), finished=self.finished[rank],
            last_finish_ns=self._ns(rank, self.last_finish_s[rank]) if self.finished[rank] else 0,
            in_flight=ops,
            communicators=(
                Communicator(
                    0, rank, self.world, "0", max(-1, self.finished[rank] - 1 - self.groups_made)
                ),
            ),
        )  # fmt: skip


def watch(
    detector: HangDetector, job: Job, seconds: float, step: Callable[[], None] = lambda: None,
    every_s: float = 1.0,
) -> list[Detection]:  # fmt: skip
    """Look at regular intervals; `step` runs before each look."""
    found = []
    for _ in range(round(seconds / every_s)):
        job.now_s += every_s
        step()
        found.append(detector.update(job.now_s, job.views()))
    return found


def hung(detections: Iterable[Detection]) -> list[Detection]:
    return [d for d in detections if d.health is JobHealth.HUNG]


def running(job: Job) -> Callable[[], None]:
    return lambda: job.finish(range(job.world))


def test_nothing_can_be_said_before_the_first_operation() -> None:
    found = watch(HangDetector(TIMEOUT_S), Job(), 100)
    assert {d.health for d in found} == {JobHealth.HEALTHY}
    assert found[-1].sentence == "starting: no operation yet"


def test_groups_are_made_and_then_long_imports_follow() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    job.groups_made = 1
    job.finish(range(WORLD))
    found = watch(detector, job, 100)
    assert {d.health for d in found} == {JobHealth.HEALTHY}
    assert found[-1].sentence == "starting: no operation yet"
    job.finish([0])
    assert hung(watch(detector, job, 12))


def test_a_rank_that_ends_normally_moves_the_job() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    watch(detector, job, 5, running(job))
    watch(detector, job, 8)
    job.alive[0] = False
    assert not hung(watch(detector, job, 9))
    assert hung(watch(detector, job, 3))[0].ranks == RankSet.of([1, 2])


def over(detector: HangDetector) -> Job:
    """A job whose work is done, and that has been given time to exit."""
    job = Job()
    watch(detector, job, 5, running(job))
    assert len([found for found in watch(detector, job, 12) if found.fresh]) == 1
    detector.give_time_to_exit()
    return job


def test_a_job_that_does_nothing_at_its_end_is_given_one_more_timeout() -> None:
    detector = HangDetector(TIMEOUT_S)
    job = over(detector)
    job.cpu = [(0.001, 0.0)] * WORLD
    assert not hung(watch(detector, job, 10))
    assert hung(watch(detector, job, 2))[0].fresh
    assert detector.is_over


def test_a_job_that_works_at_its_end_is_given_more_time_but_not_for_ever() -> None:
    detector = HangDetector(TIMEOUT_S)
    job = over(detector)
    job.cpu[1] = (0.01, 0.0)
    assert not hung(watch(detector, job, 300))
    # It gets to use more: six timeouts of CPU time are left to it, less what it has had.
    job.cpu[1] = (1.0, 0.0)
    assert not hung(watch(detector, job, 35))
    assert hung(watch(detector, job, 10))


def test_a_job_that_goes_on_after_all_is_not_over() -> None:
    detector = HangDetector(TIMEOUT_S)
    job = over(detector)
    watch(detector, job, 12, running(job))
    assert not detector.is_over
    job.cpu = [(0.9, 0.0)] * WORLD
    assert hung(watch(detector, job, 12))


def test_what_is_in_flight_at_the_end_hangs_as_ever() -> None:
    detector = HangDetector(TIMEOUT_S)
    job = over(detector)
    job.cpu[1] = (0.5, 0.0)
    job.begin([0])
    assert hung(watch(detector, job, 12))


def test_a_restarted_job_is_not_over() -> None:
    detector = HangDetector(TIMEOUT_S)
    job = over(detector)
    job.generation += 1
    watch(detector, job, 1)
    assert not detector.is_over


def unheard(view: RankView) -> RankView:
    said = {"flight recorder": "5 operations called, when it last answered"}
    return replace(view, hook=None, sources=Sources("", said))


def test_ranks_of_which_nothing_is_heard_any_more_do_not_hang() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    watch(detector, job, 5, running(job))
    for _ in range(50):
        job.now_s += 1.0
        detection = detector.update(job.now_s, [unheard(view) for view in job.views()])
        assert detection.health is JobHealth.HEALTHY
    assert detection.sentence == "nothing is heard of any rank"
    # All of the timeout is left to a rank that is heard of again, and finishes nothing.
    assert not hung(watch(detector, job, 9))
    assert hung(watch(detector, job, 3))


def test_a_rank_that_is_not_heard_of_does_not_hide_that_the_others_hang() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    watch(detector, job, 5, running(job))
    job.begin([1, 2])
    found = []
    for _ in range(13):
        job.now_s += 1.0
        first, *others = job.views()
        found.append(detector.update(job.now_s, [unheard(first), *others]))
    assert hung(found)[0].ranks == RankSet.of([1, 2])


def test_a_recorder_that_vanishes_without_another_source_hides_no_hang() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    watch(detector, job, 5, running(job))
    found = []
    for _ in range(13):
        job.now_s += 1.0
        found.append(detector.update(job.now_s, [replace(v, hook=None) for v in job.views()]))
    assert hung(found)


def test_a_group_that_is_never_made_is_a_hang() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    job.begin([0, 1], "connect")
    assert hung(watch(detector, job, 12))[0].ranks == RankSet.of([0, 1])


def test_a_first_operation_that_never_ends_is_a_hang() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    job.begin([0, 1])
    found = hung(watch(detector, job, 12))
    assert found[0].ranks == RankSet.of([0, 1])
    assert found[0].sentence == (
        "all_reduce #0 of the default group in flight for 11.0 s on ranks 0-1 (limit 10 s)"
    )


def test_a_job_that_moves_is_healthy() -> None:
    job = Job()
    assert {d.health for d in watch(HangDetector(TIMEOUT_S), job, 60, running(job))} == {
        JobHealth.HEALTHY
    }


def test_one_rank_in_flight_is_enough_and_the_hang_is_fresh_once() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    watch(detector, job, 5, running(job))
    job.begin([0])
    # The others go on finishing operations of another group.
    found = watch(detector, job, 30, lambda: job.finish([1, 2]))
    assert [d.fresh for d in hung(found)] == [True] + [False] * (len(hung(found)) - 1)
    assert hung(found)[0].ranks == RankSet.of([0])
    assert len(hung(found)) == 20


def test_a_hang_with_nobody_in_flight_is_caught() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    watch(detector, job, 5, running(job))
    found = hung(watch(detector, job, 12))
    assert found[0].ranks == RankSet.world(WORLD)
    assert found[0].sentence.startswith("no rank has finished an operation for 11.0 s")


def test_after_progress_a_second_hang_is_fresh_again() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    watch(detector, job, 5, running(job))
    first = hung(watch(detector, job, 15))
    assert not hung(watch(detector, job, 5, running(job)))
    second = hung(watch(detector, job, 15))
    assert first[0].fresh
    assert second[0].fresh


def test_phases_below_the_timeout_are_no_hang() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    for _ in range(5):
        assert not hung(watch(detector, job, 2, running(job)))
        assert not hung(watch(detector, job, 9))


def test_a_jump_of_the_watchers_time_does_not_count() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    watch(detector, job, 10, running(job))
    job.begin(range(WORLD))
    watch(detector, job, 2)
    job.now_s += 3600  # launcher and workers were stopped together, and continued
    assert not hung(watch(detector, job, 5))
    assert not hung(watch(detector, job, 5, running(job)))


def test_an_operation_begun_during_the_jump_counts_from_after_it() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    watch(detector, job, 10, running(job))
    job.now_s += 1
    job.begin(range(WORLD))
    job.now_s += 3600
    assert not hung(watch(detector, job, 8))
    assert hung(watch(detector, job, 4))


def test_a_paused_job_is_not_hung_but_one_stopped_rank_is() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    watch(detector, job, 5, running(job))
    job.begin([0, 1])
    job.letters = ["T"] * WORLD
    found = watch(detector, job, 60)
    assert {d.health for d in found} == {JobHealth.PAUSED}
    assert "the job is paused" in found[-1].sentence
    job.letters = ["S", "S", "T"]
    assert not hung(watch(detector, job, 9))
    assert hung(watch(detector, job, 3))


def test_a_job_of_one_rank_that_is_stopped_is_hung() -> None:
    job, detector = Job(1), HangDetector(TIMEOUT_S)
    watch(detector, job, 5, running(job))
    job.letters = ["T"]
    assert hung(watch(detector, job, 12))


def test_ranks_that_have_ended_are_not_waited_for() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    watch(detector, job, 5, running(job))
    job.alive = [False] * WORLD
    assert {d.sentence for d in watch(detector, job, 30)} == {"no rank is running"}


def test_a_restart_begins_anew() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    watch(detector, job, 5, running(job))
    assert hung(watch(detector, job, 12))
    job.generation, job.finished, job.flight = 1, [0] * WORLD, [None] * WORLD
    assert not hung(watch(detector, job, 3))
    job.begin([0])
    assert hung(watch(detector, job, 12))[0].fresh


def test_a_look_has_what_is_in_flight_and_for_how_long_nothing_was_finished() -> None:
    job, detector = Job(), HangDetector(300)
    watch(detector, job, 8, running(job))
    job.begin([1])
    watch(detector, job, 4, lambda: job.finish([0]))
    (flight,) = detector.look.flights
    assert (flight.rank, flight.op.name, flight.age_s) == (1, "allreduce", 4)
    assert detector.look.gap_s == pytest.approx(1)
    assert detector.look.under_way
    watch(detector, job, 3)
    assert detector.look.idle_s == pytest.approx(3)
    assert detector.look.gap_s is None


def test_a_timeout_has_to_be_above_0() -> None:
    with pytest.raises(ValueError, match="above 0"):
        HangDetector(0)


def test_a_burst_of_operations_before_the_first_step_is_no_job_under_way() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    under_way = []
    for every_s in (0.1, 1.0):
        watch(detector, job, 20 * every_s, running(job), every_s=every_s)
        under_way.append(detector.look.under_way)
    assert under_way == [False, True]


def test_imports_after_the_first_operation_are_no_hang_however_slow_the_host() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    watch(detector, job, 2, running(job))
    # Four ranks share half a core: they compute, or wait for a CPU.
    job.cpu = [(0.1, 0.85)] * WORLD
    assert not hung(watch(detector, job, 4 * TIMEOUT_S))
    # From here on they only wait for one another.
    job.cpu = [(0.0, 0.0)] * WORLD
    assert not hung(watch(detector, job, TIMEOUT_S - 1))
    assert hung(watch(detector, job, 3))


def test_who_waits_for_slow_imports_elsewhere_is_not_hung_where_the_host_lacks_cpus() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    watch(detector, job, 2, running(job))
    job.begin([0])
    job.cpu = [(0.0, 0.0), (0.4, 0.4), (0.5, 0.5)]
    assert not hung(watch(detector, job, 3 * TIMEOUT_S - 1))
    # But not for long, as a hang looks alike on such a host.
    assert hung(watch(detector, job, 4))


def test_an_endless_loop_that_others_wait_for_is_named_where_there_are_cpus_for_all() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    watch(detector, job, 2, running(job))
    job.begin([0])
    job.cpu = [(0.0, 0.0), (1.0, 0.0), (1.0, 0.0)]
    assert hung(watch(detector, job, TIMEOUT_S + 2))


def test_a_blocked_rank_is_named_however_busy_the_others_are() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    watch(detector, job, 2, running(job))
    job.cpu = [(0.5, 0.5), (0.5, 0.5), (0.0, 0.0)]
    assert hung(watch(detector, job, TIMEOUT_S + 2))


@pytest.mark.parametrize(
    ("cpu", "timeouts"),
    [((1.0, 0.0), 5), ((0.5, 0.5), 10), ((0.1, 0.9), 50), ((0.001, 0.999), 50)],
)
def test_patience_with_a_busy_host_has_an_end(cpu: tuple[float, float], timeouts: int) -> None:
    """Five timeouts of a host with CPUs for all: the less of one a rank has, the longer."""
    job, detector = Job(), HangDetector(TIMEOUT_S)
    watch(detector, job, 2, running(job))
    job.cpu = [cpu] * WORLD
    assert not hung(watch(detector, job, timeouts * TIMEOUT_S))
    assert hung(watch(detector, job, 2 * TIMEOUT_S))


def test_a_job_under_way_gets_no_more_time_for_being_busy() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    watch(detector, job, 15, running(job))
    job.cpu = [(0.1, 0.9)] * WORLD
    assert hung(watch(detector, job, TIMEOUT_S + 2))


@settings(deadline=None)
@given(st.lists(st.floats(0.05, 9.0), max_size=40), st.floats(0.1, 2.0))
def test_it_never_fires_while_gaps_stay_below_the_timeout(
    gaps: list[float], every_s: float
) -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    due_s = 0.0
    for gap_s in gaps:
        due_s += gap_s
        while job.now_s + every_s < due_s:
            job.now_s += every_s
            assert detector.update(job.now_s, job.views()).health is not JobHealth.HUNG
        at_s, job.now_s = job.now_s, due_s
        job.finish(range(WORLD))
        job.begin([0])
        job.now_s = at_s


@settings(deadline=None)
@given(
    moving_s=st.integers(1, 30),
    timeout_s=st.floats(1.0, 60.0),
    every_s=st.floats(0.1, 4.0),
    in_flight=st.sets(st.integers(0, WORLD - 1)),
)
def test_it_fires_within_the_timeout_and_one_look(
    moving_s: int, timeout_s: float, every_s: float, in_flight: set[int]
) -> None:
    job, detector = Job(), HangDetector(timeout_s)
    for _ in range(moving_s):
        job.now_s += every_s
        job.finish(range(WORLD))
        assert detector.update(job.now_s, job.views()).health is not JobHealth.HUNG
    job.begin(in_flight)
    stuck_s = job.now_s
    while True:
        job.now_s += every_s
        if detector.update(job.now_s, job.views()).health is JobHealth.HUNG:
            break
        assert job.now_s - stuck_s <= timeout_s + every_s + 1e-6
    assert job.now_s - stuck_s > timeout_s - 1e-6


def test_the_order_of_ranks_does_not_matter() -> None:
    first, second = HangDetector(TIMEOUT_S), HangDetector(TIMEOUT_S)
    job = Job()
    job.begin([1])
    for _ in range(15):
        job.now_s += 1
        assert first.update(job.now_s, job.views()) == second.update(job.now_s, job.views()[::-1])


def test_a_rank_without_a_recorder_is_no_obstacle() -> None:
    job, detector = Job(), HangDetector(TIMEOUT_S)
    job.begin([0])
    for _ in range(12):
        job.now_s += 1
        views = [*job.views(), replace(job.views()[0], rank=7, hook=None)]
        last = detector.update(job.now_s, views)
    assert last.health is JobHealth.HUNG
    assert last.ranks == RankSet.of([0])
