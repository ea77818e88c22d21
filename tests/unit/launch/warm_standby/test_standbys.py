"""When standbys are made, used and given up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from relkit.launch.warm_standby import standbys as standbys_module
from relkit.launch.warm_standby.handover import WorkerCommand
from relkit.launch.warm_standby.memory import MemoryLimits, Room
from relkit.launch.warm_standby.seen_imports import NothingSeen, SeenImports, Signatures
from relkit.launch.warm_standby.standby import HandOverFailed, Ready
from relkit.launch.warm_standby.standbys import StandbyProcess, Standbys

WORKER = WorkerCommand((sys.executable, "-u", "train.py"), {"RANK": "0"})
PROCESS = cast("subprocess.Popen[bytes]", object())


SEEN = SeenImports(("",), ("torch",), {"torch": ("installed", "/t.py")}, "", {}, "")


@pytest.fixture(autouse=True)
def noted(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """All workers have imported torch; for how long they have noted nothing can be set."""
    facts = {"quiet_s": 3.0}
    monkeypatch.setattr(standbys_module, "seen_imports", lambda _notes: SEEN)
    monkeypatch.setattr(standbys_module, "quiet_s", lambda _notes: facts["quiet_s"])
    return facts


@dataclass
class Pretended:
    """A standby without a process."""

    fails: str = ""
    was_killed: bool = False
    hand_over_fails: str = ""
    ready: Ready | None = None
    is_ended: bool = False
    hurries: bool = False

    def start(self) -> None:
        return

    def look(self) -> str:
        return self.fails

    def hurry(self) -> None:
        self.hurries = True

    def hand_over(
        self,
        _: WorkerCommand,
        __: Sequence[tuple[int, int]],
        ___: Signatures | None = None,
    ) -> subprocess.Popen[bytes]:
        if self.hand_over_fails:
            raise HandOverFailed(self.hand_over_fails)
        return PROCESS

    def end(self) -> None:
        self.is_ended = True


@dataclass
class Stage:
    """Standbys with pretended processes, and what was said."""

    cores: int = 64
    free: float = 0.5
    ends_together: bool = False
    now_s: float = 0.0
    is_wanted: bool = True
    logged: list[str] = field(default_factory=list)
    made: list[Pretended] = field(default_factory=list)
    standbys: Standbys = field(init=False)

    def __post_init__(self) -> None:
        self.standbys = Standbys(
            self.is_wanted,
            self.logged.append,
            make=self._make,
            memory=MemoryLimits(
                lambda: Room(1000, int(1000 * self.free)),
                lambda: self.ends_together,
                lambda: self.now_s,
            ),
            cores=self.cores,
        )

    def _make(self, command: WorkerCommand, seen: SeenImports, *, hurry: bool) -> StandbyProcess:
        assert (command, seen) == (WORKER, SEEN)
        self.made.append(Pretended(hurries=hurry))
        return self.made[-1]

    def workers_start(self, count: int = 2) -> list[subprocess.Popen[bytes] | None]:
        self.standbys.begin()
        started = [self.standbys.start(local_rank, WORKER, ()) for local_rank in range(count)]
        self.standbys.watch(Path("notes"), dict.fromkeys(range(count), 1))
        return started

    def all_ready(self) -> None:
        for each in self.made:
            each.ready = Ready(150_000_000)
        self.standbys.look(may_start=False)


def test_they_are_made_once_the_job_trains_and_used_at_the_restart() -> None:
    stage = Stage()
    assert stage.workers_start() == [None, None]
    stage.standbys.look(may_start=False)
    assert stage.made == []
    stage.standbys.look(may_start=True)
    assert len(stage.made) == 2
    stage.all_ready()
    said = "warm standby: 2 processes, 150 MB each (PSS); --no-warm-standby leaves them out"
    assert stage.logged == [said]
    assert stage.workers_start() == [PROCESS, PROCESS]
    assert stage.standbys.used == 2
    stage.standbys.look(may_start=True)
    assert len(stage.made) == 4
    stage.standbys.close()
    assert [each.is_ended for each in stage.made] == [False, False, True, True]
    stage.standbys.look(may_start=True)
    assert len(stage.made) == 4


def test_few_at_a_time_import_where_there_are_few_cores() -> None:
    stage = Stage(cores=2)
    stage.workers_start()
    stage.standbys.look(may_start=True)
    stage.standbys.look(may_start=True)
    assert len(stage.made) == 1
    stage.all_ready()
    stage.standbys.look(may_start=True)
    assert len(stage.made) == 2


def test_one_that_does_not_take_over_is_said_and_a_plain_start_takes_place() -> None:
    stage = Stage()
    stage.workers_start()
    stage.standbys.look(may_start=True)
    stage.all_ready()
    stage.made[1].hand_over_fails = "it was not ready"
    assert stage.workers_start() == [PROCESS, None]
    assert stage.standbys.used == 1
    assert stage.logged[-1] == (
        "local rank 1 is started anew, its standby was not used: it was not ready"
    )


def test_those_that_fail_again_and_again_are_given_up() -> None:
    stage = Stage()
    stage.workers_start(1)
    for _ in range(10):
        stage.standbys.look(may_start=True)
        stage.made[-1].fails = "it has ended"
    assert len(stage.made) == 3
    assert all(each.is_ended for each in stage.made)
    assert stage.logged == ["warm standby for local rank 0 given up: it has ended"]


def test_those_that_were_killed_are_counted() -> None:
    stage = Stage()
    stage.workers_start(3)
    assert stage.standbys.look(may_start=True) == 0
    for each, killed in zip(stage.made, (True, False, True), strict=True):
        each.fails, each.was_killed = "it has ended", killed
    assert stage.standbys.look(may_start=False) == 2
    assert stage.standbys.look(may_start=False) == 0


def test_without_enough_memory_none_is_made_and_that_is_said_once() -> None:
    stage = Stage(free=0.19)
    stage.workers_start()
    for _ in range(3):
        stage.standbys.look(may_start=True)
    assert stage.made == []
    assert len(stage.logged) == 1
    assert "19% of the memory is available" in stage.logged[0]


def test_those_that_wait_end_where_memory_becomes_short(noted: dict[str, float]) -> None:
    stage = Stage()
    stage.workers_start()
    noted["quiet_s"] = 100.0
    stage.standbys.look(may_start=True)
    assert len(stage.made) == 2
    stage.free, stage.now_s = 0.15, 10.0
    stage.standbys.look(may_start=True)
    assert not any(standby.is_ended for standby in stage.made)
    stage.free, stage.now_s = 0.05, 20.0
    stage.standbys.look(may_start=True)
    assert all(standby.is_ended for standby in stage.made)
    assert "warm standby: ended, as 5% of the memory is available" in stage.logged
    # No new ones before there is room for them.
    stage.free = 0.15
    stage.standbys.look(may_start=True)
    assert len(stage.made) == 2


def test_none_is_made_where_the_kernel_ends_all_processes_of_a_group(
    noted: dict[str, float],
) -> None:
    stage = Stage(ends_together=True)
    stage.workers_start()
    noted["quiet_s"] = 100.0
    stage.standbys.look(may_start=True)
    assert not stage.made
    assert any("memory.oom.group" in line for line in stage.logged)


@pytest.mark.parametrize("argv", [("/bin/sh", "train.sh"), ("numactl", "python")])
def test_what_is_no_interpreter_has_none(argv: tuple[str, ...]) -> None:
    stage = Stage()
    assert stage.standbys.start(0, WorkerCommand(argv, {}), ()) is None
    stage.standbys.look(may_start=True)
    assert stage.made == []
    assert "no Python interpreter" in stage.logged[0]


def test_where_they_are_not_wanted_nothing_happens() -> None:
    stage = Stage(is_wanted=False)
    assert stage.workers_start() == [None, None]
    stage.standbys.look(may_start=True)
    assert (stage.made, stage.logged) == ([], [])


def test_none_is_made_before_the_workers_have_made_their_imports(noted: dict[str, float]) -> None:
    stage = Stage()
    stage.workers_start()
    noted["quiet_s"] = 1.0
    stage.standbys.look(may_start=True)
    assert stage.made == []
    noted["quiet_s"] = 2.5
    stage.standbys.look(may_start=True)
    assert len(stage.made) == 2


def test_where_nothing_can_be_imported_ahead_that_is_said_once_and_workers_start_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(_notes: Path) -> SeenImports:
        raise NothingSeen("train.py does more than import (line 2)")

    monkeypatch.setattr(standbys_module, "seen_imports", nothing)
    stage = Stage()
    for _ in range(2):
        assert stage.workers_start() == [None, None]
        stage.standbys.look(may_start=True)
        stage.standbys.hurry()
    assert stage.made == []
    assert stage.logged == [
        "warm standby: none is made: train.py does more than import (line 2)",
    ]


def test_once_the_job_has_stopped_those_that_import_hurry_and_the_others_begin(
    noted: dict[str, float],
) -> None:
    stage = Stage(cores=2)
    stage.workers_start(3)
    stage.standbys.look(may_start=True)
    assert [each.hurries for each in stage.made] == [False]
    noted["quiet_s"] = 0.0
    stage.standbys.hurry()
    assert [each.hurries for each in stage.made] == [True, True, True]
    assert stage.workers_start(3) == [PROCESS] * 3


def test_what_was_seen_of_a_worker_holds_for_those_that_follow_it_as_standbys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[Path] = []

    def reads(path: Path) -> SeenImports:
        read.append(path)
        return SEEN

    monkeypatch.setattr(standbys_module, "seen_imports", reads)
    stage = Stage()
    stage.workers_start(1)
    for _ in range(3):
        stage.standbys.look(may_start=True)
        stage.all_ready()
        assert stage.workers_start(1) == [PROCESS]
    assert read == [Path("notes/1.imports")]
    stage.standbys.look(may_start=True)
    stage.made[-1].hand_over_fails = "train.py has changed"
    assert stage.workers_start(1) == [None]
    stage.standbys.look(may_start=True)
    assert len(read) == 2


def test_what_is_left_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    less = replace(SEEN, stopped="t.py does more than import (line 9); jax and what follows is not")
    monkeypatch.setattr(standbys_module, "seen_imports", lambda _path: less)
    monkeypatch.setitem(globals(), "SEEN", less)
    stage = Stage()
    stage.workers_start(1)
    stage.standbys.look(may_start=True)
    stage.all_ready()
    assert stage.logged[1] == f"warm standby: {less.stopped}"
