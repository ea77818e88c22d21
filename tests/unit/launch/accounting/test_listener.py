"""Which fault is noted of what an agent tells, and the time of which call is which phase."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
from torch.distributed.elastic.multiprocessing import SignalException

from relkit.errors import RelkitError
from relkit.hang.model import Manner, Suspicion
from relkit.hang.suspicion.watch import Turn, What
from relkit.launch.accounting.accounts import Fault
from relkit.launch.accounting.listener import AccountedPhases, OtherServices
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.leaves_job import LeavesJob
from relkit.launch.job.phases import LookEnd, Phase
from relkit.launch.job.settings import ExitStatus
from relkit.ranks import RankSet

Bare: TypeAlias = Any


class Notes:
    """Accounts that remember what they were told."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.phases: list[str] = []
        self.saves: list[tuple[int, str]] = []
        self.ends: list[tuple[str, str]] = []
        self.turns: list[tuple[str, str, int]] = []
        self.started_with: list[tuple[int, int]] = []
        self.healths: list[str] = []
        self.in_fault = False
        self.moved_s: float | None = 1.0

    def fault(self, fault: Fault) -> bool:
        if self.in_fault:
            return False
        self.in_fault = True
        self.faults.append(fault)
        return True

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.phases.append(name)
        yield

    def took(self, name: str, seconds: float) -> None:
        assert seconds >= 0
        self.phases.append(f"{name} measured")

    def saved(self, step: int, by: str) -> None:
        self.saves.append((step, by))

    def begin(self, job_id: str) -> None:
        self.phases.append(f"begin {job_id}")

    def ended(self, how: str, why: str = "") -> None:
        self.ends.append((how, why))

    def look(self) -> None:
        pass

    def starts(self) -> None:
        self.phases.append("starts")

    def started(self, attempt: Attempt, standbys: int) -> None:
        self.in_fault = False
        self.started_with.append((attempt.number, standbys))

    def health(self, name: str) -> None:
        self.healths.append(name)

    def suspicion(self, turn: Turn) -> None:
        self.turns.append((turn.what, turn.suspicion.ranks.fold(), len(self.ends)))


class Scene:
    """What tells the accounts, and who else is asked."""

    def __init__(self) -> None:
        self.notes = Notes()
        self.turns: list[Turn] = []
        self.watch: Bare = SimpleNamespace(
            hung=False, remote_failure="", take_suspicions=self._take_turns
        )
        self.node_leaves, self.saved_step = "", -1
        others = OtherServices(
            lambda: self.node_leaves,
            lambda: SimpleNamespace(step=self.saved_step) if self.saved_step >= 0 else None,
            lambda: 2,
        )
        accounts: Bare = self.notes
        self.phases = AccountedPhases(accounts, self.watch, others)
        self.phases._looked_s = 5.0

    def _take_turns(self) -> list[Turn]:
        turns, self.turns = self.turns, []
        return turns

    def look(
        self, end: LookEnd, ends: dict[int, ExitStatus] | None = None, *, is_led: bool = False
    ) -> None:
        self.phases.look_begins()
        self.phases.look_ended(end, ends or {}, is_led=is_led)

    def fail(self, sentence: str, ends: dict[int, ExitStatus] | None = None) -> None:
        self.phases.failed(sentence, ends or {})
        with self.phases.phase(Phase.CAPTURE):
            pass
        self.phases.captured()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_worker_that_fails_is_a_fault_with_its_capture_and_the_others_end(scene: Scene) -> None:
    ends = {1: ExitStatus(-9, 9.0)}
    scene.phases.look_begins()
    scene.fail("rank 1 was killed by SIGKILL", ends)
    scene.phases.look_ended(LookEnd.FAILED, ends, is_led=False)
    scene.phases.meets_again()
    with scene.phases.phase(Phase.STOP):
        pass
    assert scene.notes.faults == [
        Fault("killed by SIGKILL", "rank 1 was killed by SIGKILL", 1, 5.0)
    ]
    assert scene.notes.phases == ["capture", "stop measured", "stop"]


def test_a_hang_has_begun_when_the_rank_moved_last(scene: Scene) -> None:
    scene.look(LookEnd.WORKS)
    scene.watch.hung = True
    scene.look(LookEnd.WORKS)
    seen_s = scene.phases._hung_seen_s
    scene.look(LookEnd.WORKS)
    assert scene.notes.faults == []
    scene.look(LookEnd.RESTARTS)
    assert scene.notes.faults == [Fault("hang", "the job hung", -1, 1.0, seen_s)]
    assert scene.notes.phases == ["capture measured"]


def test_a_hang_that_moves_again_is_forgotten(scene: Scene) -> None:
    for hung in (True, False):
        scene.watch.hung = hung
        scene.look(LookEnd.WORKS)
    assert scene.notes.healths == ["hung", "goes on"]
    scene.fail("rank 0 exited with code 1")
    assert [fault.cause for fault in scene.notes.faults] == ["worker failed"]


def test_a_job_that_is_ended_for_a_hang_has_that_fault(scene: Scene) -> None:
    scene.watch.hung = True
    scene.look(LookEnd.ABORTED)
    assert [fault.cause for fault in scene.notes.faults] == ["hang"]


def test_a_look_that_breaks_off_says_nothing(scene: Scene) -> None:
    scene.watch.hung = True
    scene.look(LookEnd.BROKEN)
    assert scene.notes.faults == []
    assert scene.phases._looked_s == 5.0


def test_a_fault_under_try_to_persist_has_its_save_and_its_step(scene: Scene) -> None:
    scene.saved_step = 12
    ends = {0: ExitStatus(75, 3.0), 1: ExitStatus(-9, 2.0)}
    for _ in range(2):
        scene.look(LookEnd.FAILED, ends, is_led=True)
    assert [(fault.cause, fault.rank) for fault in scene.notes.faults] == [("killed by SIGKILL", 1)]
    assert scene.notes.saves == [(12, "try-to-persist")]
    assert scene.notes.phases.count("save measured") == 1


def test_other_nodes_that_meet_again_and_one_that_leaves_are_told_apart(scene: Scene) -> None:
    scene.phases.meets_again()
    assert [fault.cause for fault in scene.notes.faults] == ["nodes changed"]
    scene.notes.in_fault = False
    scene.node_leaves = "node 3 is slow"
    scene.fail("rank 0 exited with code 1")
    assert scene.notes.faults[1] == Fault("node left", "node 3 is slow", -1, 5.0)


def test_what_node_0_was_told_of_another_node_is_the_fault_here_as_well(scene: Scene) -> None:
    told = "rank 9 (pid 17) was killed by SIGKILL"
    scene.watch.remote_failure = told
    scene.phases.meets_again()
    assert scene.notes.faults == [Fault("killed by SIGKILL", told, 9)]
    scene.notes.in_fault = False
    scene.fail("rank 0 exited with code 1", {0: ExitStatus(1, 9.0)})
    assert scene.notes.faults[1] == Fault("killed by SIGKILL", told, 9, 5.0)


@pytest.mark.parametrize(
    ("ended_by", "fault"),
    [
        (
            SignalException("got it", signal.SIGTERM),
            Fault("launcher got SIGTERM", "the launcher got SIGTERM"),
        ),
        (LeavesJob(RelkitError("it is slow")), Fault("node leaves", "it is slow")),
    ],
)
def test_what_ends_a_launcher_is_a_fault(
    scene: Scene, ended_by: BaseException, fault: Fault
) -> None:
    scene.phases.shuts_down(None, "SIGTERM")
    assert scene.notes.faults == []
    scene.phases.shuts_down(ended_by, "SIGTERM")
    assert scene.notes.faults == [fault]


def test_a_run_begins_and_ends(scene: Scene) -> None:
    scene.phases.job_begins("job")
    scene.phases.job_ended("ended", "got it")
    assert scene.notes.phases == ["begin job"]
    assert scene.notes.ends == [("ended", "got it")]


def test_what_is_kept_in_memory_counts_after_a_fault_only(scene: Scene) -> None:
    for _ in range(2):
        with scene.phases.phase(Phase.SAVE):
            pass
        scene.phases.saved(4, "memory")
        scene.phases.starts()
        scene.phases.started(Attempt("job", number=1))
        scene.fail("rank 0 exited with code 1")
    assert scene.notes.phases == ["starts", "capture", "save", "starts", "capture"]
    assert scene.notes.saves == [(4, "memory")]
    assert scene.notes.started_with == [(1, 2)] * 2


def test_what_becomes_of_suspicions_is_noted_before_the_end(scene: Scene) -> None:
    suspicion = Suspicion(RankSet.of([2]), "rank 2 has not joined", Manner.FROZEN, 12.0)
    scene.turns = [Turn(What.BEGAN, suspicion)]
    scene.look(LookEnd.WORKS)
    scene.look(LookEnd.WORKS)
    assert scene.notes.turns == [("began", "2", 0)]
    scene.turns = [Turn(What.WENT_ON, suspicion)]
    scene.phases.job_ended("succeeded", "")
    assert scene.notes.turns == [("began", "2", 0), ("went on", "2", 0)]
    assert len(scene.notes.ends) == 1
