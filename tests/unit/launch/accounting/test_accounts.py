"""What a launcher notes of its workers, from a recorder file that a test writes."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from torch.distributed.elastic.multiprocessing import SignalException

from relkit.accounting.account import account_of
from relkit.accounting.journal import Journal
from relkit.accounting.records import Record, What
from relkit.accounting.worker_notes import is_counted, note_counted, noted_load, read_load
from relkit.hook import layout
from relkit.hook.model import OpKind
from relkit.launch.accounting.accounts import (
    Accounts,
    Fault,
    fault_elsewhere,
    fault_of,
)
from relkit.launch.accounting.progress import Progress, StepSeen
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exit_status import how_rank_ended
from relkit.launch.job.settings import ExitStatus, LocalRank
from tests.unit.hook.test_event_reader import Ring

STEP, INPUT, ALLREDUCE, GEMM = range(4)
HOOKS = ((OpKind.MARK, b"step"), (OpKind.MARK, b"input"), (OpKind.COLLECTIVE, b"allreduce"),
         (OpKind.GEMM, b"sgemm"))  # fmt: skip


class Recorder(Ring):
    """Of one rank; events are added one at a time."""

    def __init__(self, folder: Path, pid: int = 7, rank: int = 0) -> None:
        super().__init__(folder / f"{pid}.rkhook")
        hooks = np.zeros(len(HOOKS), layout.HOOK)
        for row, (kind, name) in zip(hooks, HOOKS, strict=True):
            row["kind"], row["name"] = int(kind), name
        self.header["pid"], self.header["rank"] = pid, rank
        self.header["hook_count"] = len(HOOKS)
        self.header["hooks_at"] = self.header["file_bytes"]
        self.header["file_bytes"] += hooks.nbytes
        with self.path.open("ab") as stream:
            stream.write(hooks.tobytes())
        self.count = 0
        self.write(range(0))

    def add(self, hook: int, end_s: float, number: int = -1) -> None:
        """Something has ended."""
        self.write(range(self.count, self.count + 1))
        row = self.rows[self.count % len(self.rows)]
        row["hook"], row["end_ns"], row["seq"] = hook, round(end_s * 1e9), number
        self.count += 1
        self.write(range(self.count, self.count))


class Clock:
    """Monotonic seconds that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def journal_at(path: Path) -> Callable[[str, Callable[[str], None]], Journal]:
    path.parent.mkdir(exist_ok=True)
    return lambda job_id, log: Journal(job_id, log, lambda _job_id: path)


class Launcher:
    """Accounts with a journal and a recorder of their own."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.clock, self.said = clock, list[str]()
        self.ended: list[Sequence[Record]] = []
        self.folder = folder / "hooks"
        self.folder.mkdir()
        self.recorder = Recorder(self.folder)
        self.accounts = Accounts(
            journal_at(folder / "j" / "1-1.journal"), self.said.append, self.ended.append, clock
        )
        self.accounts.begin("job")

    @property
    def records(self) -> Sequence[Record]:
        journal = self.accounts._journal
        return journal.records if journal is not None else self.ended[-1]

    @property
    def whats(self) -> list[What]:
        return [record.what for record in self.records]

    def start(self, number: int = 0) -> None:
        self.accounts.starts()
        self.clock.now_s += 1
        ranks = (LocalRank(0, 7),)
        self.accounts.started(Attempt("job", 1, ranks, number, job_dir=self.folder), 0)

    def steps(self, *numbers: int) -> None:
        for number in numbers:
            self.clock.now_s += 1
            self.recorder.add(ALLREDUCE, self.clock.now_s)
            self.recorder.add(STEP, self.clock.now_s, number)
        self.clock.now_s += 3
        self.accounts.look()


@pytest.fixture
def launcher(tmp_path: Path, clock: Clock) -> Launcher:
    return Launcher(tmp_path, clock)


def test_the_steps_before_and_after_a_fault_give_its_line(launcher: Launcher) -> None:
    launcher.start()
    launcher.steps(0, 1, 2)
    launcher.clock.now_s += 1
    seen_s = launcher.clock.now_s
    assert launcher.accounts.fault(Fault("hang", "the job hung", since_s=seen_s - 4, seen_s=seen_s))
    assert launcher.accounts.in_fault
    with launcher.accounts.phase("stop"), launcher.accounts.phase("capture"):
        launcher.clock.now_s += 2
    launcher.start(number=1)
    assert launcher.said == []
    launcher.steps(1)
    assert launcher.said == []
    launcher.steps(2)
    launcher.steps(3)
    (line,) = launcher.said
    assert line.startswith("back at step 1 after 12.0 s: detect 4.0, stop 2.0, start 2.0,")
    assert line.endswith("not seen: capture, save, rendezvous, load; 1 step lost")
    launcher.accounts.ended("succeeded")
    (records,) = launcher.ended
    assert account_of(records).steps_lost == 1
    assert [r.number for r in records if r.what is What.LAST_STEP] == [2, 3]


def test_events_of_an_earlier_attempt_or_of_no_time_are_not_of_this_one(
    launcher: Launcher,
) -> None:
    launcher.recorder.add(STEP, launcher.clock.now_s - 5, 3)
    launcher.recorder.add(STEP, launcher.clock.now_s + 1e6, 4)
    launcher.recorder.add(99, launcher.clock.now_s + 1, 5)
    launcher.start()
    launcher.steps(7)
    first = [record for record in launcher.records if record.what is What.FIRST_STEP]
    assert [record.number for record in first] == [7]


def test_without_steps_the_first_operation_is_what_a_job_comes_back_to(launcher: Launcher) -> None:
    for number in range(2):
        launcher.start(number)
        launcher.recorder.add(GEMM, launcher.clock.now_s)
        launcher.clock.now_s += 1
        launcher.accounts.look()
        assert launcher.whats[-1] is What.ATTEMPT
        launcher.recorder.add(ALLREDUCE, launcher.clock.now_s)
        launcher.clock.now_s += 1
        launcher.accounts.look()
        if not number:
            launcher.accounts.fault(Fault("killed by SIGKILL", "rank 0 was killed by SIGKILL", 0))
    (line,) = launcher.said
    assert line.startswith("back after 2.0 s: detect 0.0, start 2.0 s; not seen: ")
    assert line.endswith("steps lost: not known")


def test_what_a_worker_says_of_its_load_is_taken_where_it_is_of_this_attempt(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = launcher.folder / "rank-0.load"
    now_s = time.monotonic()
    launcher.clock.now_s = now_s - 10
    for number, (begin_s, text) in enumerate(
        (
            (now_s - 9, json.dumps([now_s - 9, now_s - 8, 41, "memory"])),
            (now_s - 9, json.dumps([now_s - 900, now_s - 800, 40, "disk"])),
            (now_s - 9, json.dumps([now_s - 8, now_s + 900, 42, "disk"])),
            (now_s - 9, "[1e999, {}]"),
            (now_s - 9, '["counted"'),
        )
    ):
        launcher.clock.now_s = now_s - 10
        note.write_text(text)
        note.chmod(0o600)
        launcher.start(number)
        launcher.clock.now_s = begin_s + 4
        launcher.steps(42 + number)
        launcher.accounts.fault(Fault("test", "the next one"))
    loads = [record for record in launcher.records if record.what is What.LOAD]
    assert [(record.number, record.text) for record in loads] == [(41, "memory")]
    assert loads[0].seconds == pytest.approx(1.0)


def test_a_loop_that_does_not_number_its_steps_is_known_by_that(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELKIT_HOOK_DIR", str(launcher.folder))
    monkeypatch.setenv("RANK", "0")
    launcher.clock.now_s = time.monotonic()
    launcher.start()
    for text in ("[1" + "0" * 400 + "]", "[]", '["x"]', "{}", "[null]"):
        (launcher.folder / "rank-0.counted").write_text(text)
        (launcher.folder / "rank-0.counted").chmod(0o600)
        assert not is_counted(launcher.folder, 0, 0.0)
    note_counted()
    launcher.clock.now_s = time.monotonic()
    launcher.steps(0, 1)
    first = next(record for record in launcher.records if record.what is What.FIRST_STEP)
    assert first.name == "counted"
    launcher.accounts.fault(Fault("x", "y"))
    launcher.clock.now_s = time.monotonic() + 1
    launcher.start(1)
    launcher.steps(0, 1)
    first = [record for record in launcher.records if record.what is What.FIRST_STEP][-1]
    assert first.name == "", "the note is of the attempt before"


def test_a_load_is_noted_for_the_launcher_and_by_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RELKIT_HOOK_DIR", raising=False)
    with noted_load() as load:
        load.step = 3
    monkeypatch.setenv("RELKIT_HOOK_DIR", str(tmp_path / "gone"))
    with noted_load():
        pass
    monkeypatch.setenv("RELKIT_HOOK_DIR", str(tmp_path))
    monkeypatch.setenv("RANK", "2")
    with noted_load() as load:
        load.step, load.source = 9, "disk"
    assert [path.name for path in tmp_path.iterdir()] == ["rank-2.load"]
    note = read_load(tmp_path, 2)
    assert note is not None
    assert (note.step, note.source) == (9, "disk")
    assert 0.0 <= note.end_s - note.begin_s < 60
    (tmp_path / "rank-2.load").chmod(0o644)
    assert read_load(tmp_path, 2) is None


def test_an_error_in_the_accounts_is_one_line_and_the_job_goes_on(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher.start()
    monkeypatch.setattr(Progress, "look", lambda _self: [][0])
    launcher.clock.now_s += 5
    for _ in range(3):
        launcher.accounts.look()
        launcher.accounts.fault(Fault("x", "y"))
        launcher.start(1)
    launcher.accounts.ended("failed")
    assert launcher.said == [
        "the job's restarts are not accounted for: IndexError: list index out of range"
    ]


def test_the_launchers_signal_is_not_taken_for_an_error(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_self: Progress) -> None:
        raise SignalException("asked to end", signal.SIGTERM)

    launcher.start()
    monkeypatch.setattr(Progress, "look", interrupted)
    launcher.clock.now_s += 5
    with pytest.raises(SignalException):
        launcher.accounts.look()


def test_workers_are_looked_at_often_until_their_first_step_has_ended(launcher: Launcher) -> None:
    looks: list[float] = []
    launcher.start()
    notes = launcher.accounts._notes
    assert notes is not None
    plain = notes.progress.look
    notes.progress.look = lambda: (looks.append(launcher.clock.now_s), plain())  # type: ignore[method-assign,assignment,func-returns-value]
    for _ in range(20):
        launcher.clock.now_s += 0.1001
        launcher.accounts.look()
    assert len(looks) == 20
    launcher.steps(0, 1)
    looks.clear()
    for _ in range(60):
        launcher.clock.now_s += 0.1001
        launcher.accounts.look()
    assert 2 <= len(looks) <= 3


def test_a_recorder_of_a_child_is_followed_where_a_script_was_started(
    tmp_path: Path, clock: Clock
) -> None:
    helper, ranks = Recorder(tmp_path, 8, rank=3), Recorder(tmp_path, 9, rank=3)
    groups = np.zeros(1, layout.COMMUNICATOR)
    groups["context"], groups["ready"], groups["size"] = 1, 1, 2
    ranks.header["communicators_at"] = ranks.header["file_bytes"]
    ranks.header["communicator_count"] = 1
    ranks.header["file_bytes"] += groups.nbytes
    with ranks.path.open("ab") as stream:
        stream.write(groups.tobytes())
    ranks.add(STEP, clock.now_s + 1, 5)
    helper.add(STEP, clock.now_s + 1, 77)
    progress = Progress(tmp_path, LocalRank(3, 7), clock.now_s, clock)
    clock.now_s += 2
    progress.look()
    progress.close()
    assert progress.first == StepSeen(5, 101.0)


def test_a_recorder_that_is_damaged_says_nothing(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "7.rkhook").write_bytes(b"\xff" * 9000)
    (tmp_path / "7.rkhook").chmod(0o600)
    progress = Progress(tmp_path, LocalRank(0, 7), clock.now_s, clock)
    progress.look()
    assert (progress.first, progress.moved_s) == (None, None)


def test_the_rank_that_failed_first_is_the_fault() -> None:
    ends = {0: ExitStatus(0), 2: ExitStatus(1, 50.0), 3: ExitStatus(-9, 40.0)}
    assert fault_of(ends, "words", 7.0) == Fault("killed by SIGKILL", "words", 3, 7.0)
    assert fault_of({2: ExitStatus(1, 50.0)}, "w", 7.0).cause == "exited with code 1"
    told = how_rank_ended(12, 345, -9)
    assert fault_elsewhere(told, 7.0) == Fault("killed by SIGKILL", told, 12, 7.0)
    assert fault_elsewhere(how_rank_ended(0, 1, 3)).cause == "exited with code 3"
    assert fault_elsewhere(how_rank_ended(0, 1, -40)).cause == "killed by signal 40"
    assert fault_elsewhere("x" * 400).cause == "another node failed"
    assert fault_of({}, "w", 7.0) == Fault("worker failed", "w", -1, 7.0)
