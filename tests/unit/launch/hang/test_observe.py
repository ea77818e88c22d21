"""The observer: real processes, made-up recorder states."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from relkit.errors import BadDump
from relkit.hang.model import HOOK
from relkit.hook.model import Communicator, HookState, Op, OpKind
from relkit.launch.hang import observe
from relkit.launch.hang.observe import CPU_WINDOW_S, Observer
from relkit.launch.hang.state_source import Occasion, RankReport, SourceReport
from relkit.launch.hang.watch import UnwatchedRanks
from relkit.launch.job.settings import ExitStatus, LocalRank
from relkit.process import procfs
from relkit.process.identity import own_namespace
from relkit.text.job_id import safe_job_id
from tests.waiting import eventually

Child = subprocess.Popen[str]


@pytest.fixture
def child() -> Iterator[Callable[[str], Child]]:
    running: list[Child] = []

    def start(code: str) -> Child:
        process = subprocess.Popen(
            [sys.executable, "-c", "print(flush=True)\n" + code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout
        process.stdout.readline()
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def state(pid: int, rank: int, *, started: int = 1, talks: bool = True) -> HookState:
    return HookState(
        pid=pid,
        # Also of one that has ended meanwhile.
        start_ticks=procfs.start_ticks(pid) or 1,
        pid_namespace=own_namespace(),
        rank=rank,
        local_rank=rank,
        world_size=2,
        now_ns=10,
        boot_to_unix_ns=0,
        started=started,
        finished=started,
        last_finish_ns=1,
        communicators=(Communicator(0, rank, 2, "0", 1),) if talks else (),
    )


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[Path, HookState | None]:
    """What the recorder files hold; None for one that cannot be read."""
    found: dict[Path, HookState | None] = {}

    def read(path: Path, *, recent: bool, history: bool) -> HookState:
        held = found[path]
        if held is None:
            raise BadDump("torn")
        return held

    monkeypatch.setattr(observe, "state_files", lambda _: sorted(found))
    monkeypatch.setattr(observe, "read_state", read)
    return found


def test_a_live_rank(child: Callable[[str], Child], files: dict[Path, HookState | None]) -> None:
    pid = child("input()").pid
    files[Path(f"{pid}.rkhook")] = state(pid, 1)
    observer = Observer(Path("job"), host="h")
    (view,) = observer.views([LocalRank(1, pid)])
    assert (view.rank, view.host, view.pid, view.alive) == (1, "h", pid, True)
    assert view.hook == state(pid, 1)
    assert view.process_state in {"S", "R", "D"}
    assert observer.file_of(1) == Path(f"{pid}.rkhook")


def test_without_the_hook(child: Callable[[str], Child]) -> None:
    pid = child("input()").pid
    (view,) = Observer(None).views([LocalRank(0, pid)])
    assert view.alive
    assert view.hook is None


def test_an_unreadable_file_hides_no_rank(
    child: Callable[[str], Child], files: dict[Path, HookState | None]
) -> None:
    pid = child("input()").pid
    files[Path(f"{pid}.rkhook")] = None
    (view,) = Observer(Path("job")).views([LocalRank(0, pid)])
    assert view.alive
    assert view.hook is None


def test_a_dead_rank_keeps_its_last_state(
    child: Callable[[str], Child], files: dict[Path, HookState | None]
) -> None:
    process = child("input()")
    files[Path(f"{process.pid}.rkhook")] = state(process.pid, 0)
    process.send_signal(signal.SIGKILL)
    process.wait()
    exit_statuses = {0: ExitStatus(-9, 12.5, "")}
    (view,) = Observer(Path("job")).views([LocalRank(0, process.pid)], exit_statuses)
    assert not view.alive
    assert view.hook is not None
    assert (view.exit_code, view.failed_unix_s, view.process_state) == (-9, 12.5, "")


def test_who_has_ended_since_it_was_looked_at(
    child: Callable[[str], Child], files: dict[Path, HookState | None]
) -> None:
    stays, goes, gone = child("input()"), child("input()"), child("input()")
    for rank, process in enumerate((stays, goes)):
        files[Path(f"{process.pid}.rkhook")] = state(process.pid, rank)
    gone.kill()
    gone.wait()
    observer = Observer(Path("job"))
    ranks = [LocalRank(rank, each.pid) for rank, each in enumerate((stays, goes, gone))]
    views = observer.views(ranks)
    assert observer.ended(views) == frozenset()
    goes.kill()
    goes.wait()
    assert observer.ended(views) == {1}
    # Its number belongs to another process now.
    assert views[0].hook is not None
    other = replace(views[0], hook=replace(views[0].hook, start_ticks=1))
    assert observer.ended([other]) == {0}


def test_a_rank_that_fails_between_two_looks_failed_before_it_ended(
    child: Callable[[str], Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = child("input()")
    pid, path = process.pid, Path(f"{process.pid}.rkhook")
    op = Op("allreduce", OpKind.COLLECTIVE, 5, 0, 4, 1, 10)
    before = replace(state(pid, 0), in_flight=(op,))
    after = replace(before, in_flight=(), recent=(replace(op, end_ns=20, failed=True),))

    def read(path: Path, *, recent: bool, history: bool) -> HookState:
        if process.poll() is not None:
            return after
        process.kill()
        process.wait()
        return before

    monkeypatch.setattr(observe, "state_files", lambda _: [path])
    monkeypatch.setattr(observe, "read_state", read)
    (view,) = Observer(Path("job")).views([LocalRank(0, pid)])
    assert not view.alive
    assert view.hook == after


def test_a_zombie_is_not_alive(child: Callable[[str], Child]) -> None:
    process = child("import os; os._exit(3)")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    (view,) = Observer(None).views([LocalRank(0, process.pid)])
    assert not view.alive


def test_a_process_that_has_a_dead_ranks_pid_is_not_that_rank(
    child: Callable[[str], Child], files: dict[Path, HookState | None]
) -> None:
    pid = child("input()").pid
    files[Path("a.rkhook")] = replace(state(pid, 0), start_ticks=procfs.start_ticks(pid) - 1)
    (view,) = Observer(Path("job")).views([LocalRank(0, pid)])
    assert (view.alive, view.process_state) == (False, "")


def test_a_rank_behind_a_wrapper(
    child: Callable[[str], Child], files: dict[Path, HookState | None]
) -> None:
    wrapper, real, helper = (child("input()").pid for _ in range(3))
    files[Path("a.rkhook")] = state(real, 0, started=5)
    # A loader worker inherits RANK, and multiplies matrices, but never talks to another rank.
    files[Path("b.rkhook")] = state(helper, 0, started=50, talks=False)
    observer = Observer(Path("job"))
    (view,) = observer.views([LocalRank(0, wrapper)])
    assert view.pid == real
    assert observer.file_of(0) == Path("a.rkhook")
    assert observer.discover() == (LocalRank(0, real),)


def test_a_process_without_rank_is_rank_0(
    child: Callable[[str], Child], files: dict[Path, HookState | None]
) -> None:
    pid = child("input()").pid
    files[Path("a.rkhook")] = state(pid, -1)
    observer = Observer(Path("job"))
    assert observer.discover() == (LocalRank(0, pid),)
    assert observer.views(observer.discover())[0].pid == pid


def wait_for_cpu_use(pid: int) -> None:
    """Until the process has used 0.05 s more of the CPU."""
    wanted_s = procfs.cpu_s(pid) + 0.05
    eventually(lambda: procfs.cpu_s(pid) >= wanted_s, "the process uses the CPU")


def test_cpu_use_over_a_window(child: Callable[[str], Child]) -> None:
    pid = child("while True: pass").pid
    now = [100.0]
    observer = Observer(None, clock=lambda: now[0])
    rank = [LocalRank(0, pid)]
    assert observer.views(rank)[0].cpu.window_s == 0.0
    wait_for_cpu_use(pid)
    for _ in range(40):
        now[0] += 0.25
        view = observer.views(rank)[0]
    assert CPU_WINDOW_S <= view.cpu.window_s <= CPU_WINDOW_S + 0.5
    wait_for_cpu_use(pid)
    now[0] += 0.25
    used_s = observer.views(rank)[0].cpu.used_s
    assert 0.05 <= used_s <= procfs.cpu_s(pid)


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("my-run", "my-run"),
        ("../../etc", "_.._etc"),
        (".hidden", "hidden"),
        ("--x", "x"),
        ("", "job"),
        ("a/b c\n", "a_b_c_"),
        ("x" * 300, "x" * 100),
    ],
)
def test_job_ids_are_folder_names(text: str, safe: str) -> None:
    assert safe_job_id(text) == safe


@pytest.mark.parametrize(
    "damage",
    [OverflowError("int too large"), ValueError("rubbish"), MemoryError(), IndexError("row 9")],
)
def test_a_damaged_recorder_is_survived_and_named_once_it_stays_so(
    child: Callable[[str], Child],
    files: dict[Path, HookState | None],
    monkeypatch: pytest.MonkeyPatch,
    damage: Exception,
) -> None:
    pid = child("input()").pid
    good, bad = Path(f"{pid}.rkhook"), Path("1.rkhook")
    files[good], files[bad] = state(pid, 0), None

    def read(path: Path, *, recent: bool, history: bool) -> HookState:
        if path == bad:
            raise damage
        held = files[path]
        assert held is not None
        return held

    monkeypatch.setattr(observe, "read_state", read)
    observer = Observer(Path())
    for _ in range(observe._TORN_LOOKS):
        assert observer.unreadable == {}
        assert observer.views([LocalRank(0, pid)])[0].hook is not None
    assert list(observer.unreadable) == [bad]
    del files[bad]
    observer.states()
    assert observer.unreadable == {}


def ended(child: Callable[[str], Child]) -> int:
    process = child("input()")
    process.kill()
    process.wait()
    return process.pid


def in_folder(folder: Path, files: dict[Path, HookState | None], *states: HookState | None) -> None:
    for number, made in enumerate(states):
        path = folder / f"{made.pid if made else 10**9 + number}.rkhook"
        path.touch()
        files[path] = made


def test_helpers_that_have_ended_are_removed_at_the_next_look(
    child: Callable[[str], Child], files: dict[Path, HookState | None], tmp_path: Path
) -> None:
    rank, helper, other = (child("input()").pid for _ in range(3))
    gone, dead_rank, theirs = (ended(child) for _ in range(3))
    made = [state(rank, 0), state(helper, 0, talks=False), state(gone, 0), state(dead_rank, 1)]
    # Of another launcher's ranks, which use the same folder.
    made += [state(theirs, 2), state(other, 2)]
    # Of a helper without RANK in its environment.
    made.append(state(ended(child), -1))
    in_folder(tmp_path, files, *made)
    Observer(tmp_path).views([LocalRank(0, rank), LocalRank(1, dead_rank)])
    assert len(list(tmp_path.iterdir())) == len(made)
    observer = Observer(tmp_path, removes_ended=True)
    views = observer.views([LocalRank(0, rank), LocalRank(1, dead_rank)])
    assert [view.alive for view in views] == [True, False]
    kept = {rank, helper, dead_rank, theirs, other}
    assert {int(path.stem) for path in tmp_path.iterdir()} == kept


def test_of_a_rank_below_a_script_the_last_process_stays(
    child: Callable[[str], Child], files: dict[Path, HookState | None], tmp_path: Path
) -> None:
    script = child("input()").pid
    helper, real = ended(child), ended(child)
    in_folder(tmp_path, files, state(helper, 0, started=50, talks=False), state(real, 0))
    (view,) = Observer(tmp_path, removes_ended=True).views([LocalRank(0, script)])
    assert view.pid == real
    assert [path.stem for path in tmp_path.iterdir()] == [str(real)]


def test_a_file_whose_process_was_killed_while_it_made_it(
    child: Callable[[str], Child], files: dict[Path, HookState | None], tmp_path: Path
) -> None:
    rank = child("input()").pid
    in_folder(tmp_path, files, state(rank, 0), None)
    observer = Observer(tmp_path, removes_ended=True)
    for _ in range(observe._TORN_LOOKS):
        assert len(list(tmp_path.iterdir())) == 2
        observer.views([LocalRank(0, rank)])
    assert [path.stem for path in tmp_path.iterdir()] == [str(rank)]


def test_a_thousand_files_of_the_dead_are_read_once(
    child: Callable[[str], Child],
    files: dict[Path, HookState | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rank = child("input()").pid
    in_folder(tmp_path, files, state(rank, 0))
    for pid in range(10**8, 10**8 + 1000):
        in_folder(tmp_path, files, replace(state(rank, 0), pid=pid))
    read: list[Path] = []

    def reading(path: Path, *, recent: bool, history: bool) -> HookState:
        read.append(path)
        held = files[path]
        assert held is not None
        return held

    monkeypatch.setattr(observe, "state_files", lambda folder: sorted(folder.iterdir()))
    monkeypatch.setattr(observe, "read_state", reading)
    observer = Observer(tmp_path, removes_ended=True)
    observer.views([LocalRank(0, rank)])
    assert len(read) == 1001
    observer.views([LocalRank(0, rank)])
    assert len(read) == 1002


@pytest.mark.parametrize(("rank", "world_size"), [(0, 2**31 - 1), (2**31 - 2, 2)])
def test_a_rank_with_an_absurd_world_size_is_refused(
    files: dict[Path, HookState | None], rank: int, world_size: int
) -> None:
    pid = os.getpid()
    files[Path(f"{pid}.rkhook")] = replace(state(pid, 0), rank=rank, world_size=world_size)
    observer = Observer(Path())
    for _ in range(observe._TORN_LOOKS):
        assert observer.discover() == ()
    (why,) = observer.unreadable.values()
    assert why == f"RANK={rank} WORLD_SIZE={world_size} cannot be true"


class Witness:
    """A source that says what a test wants, and notes how it was asked."""

    name = "witness"

    def __init__(self) -> None:
        self.tells = SourceReport()
        self.asked: list[tuple[list[int], Occasion]] = []

    def look(self, ranks: Sequence[LocalRank], occasion: Occasion = Occasion.WATCH) -> SourceReport:
        self.asked.append(([rank.rank for rank in ranks], occasion))
        return self.tells


def test_another_source_counts_where_the_hook_sees_nothing(
    child: Callable[[str], Child], files: dict[Path, HookState | None]
) -> None:
    pids = [child("input()").pid for _ in range(3)]
    files[Path("a.rkhook")] = state(pids[0], 0)
    files[Path("b.rkhook")] = state(pids[1], 1, talks=False)
    witness, said = Witness(), list[str]()
    told = {rank: replace(state(pids[rank], rank), finished=99) for rank in range(3)}
    witness.tells = SourceReport(
        {r: RankReport(s, f"rank {r}") for r, s in told.items()}, ("look here",)
    )
    observer = Observer(Path("job"), sources=[witness], log=said.append)
    ranks = [LocalRank(rank, pid) for rank, pid in enumerate(pids)]
    views = observer.views(ranks)
    assert [v.hook and v.hook.finished for v in views] == [1, 99, 99]
    assert [v.sources.state for v in views] == ["hook", "witness", "witness"]
    assert views[0].sources.said == {"witness": "rank 0"}
    assert views[2].sources.said == {"hook": "it has seen no collective", "witness": "rank 2"}
    observer.views(ranks)
    assert [line.partition(":")[0] for line in said] == ["look here", "ranks 1-2", "look here"]


def test_a_close_look_is_asked_for_once_and_compares(
    child: Callable[[str], Child], files: dict[Path, HookState | None]
) -> None:
    pid = child("input()").pid
    files[Path("a.rkhook")] = state(pid, 0)
    stuck = Op("allreduce", OpKind.COLLECTIVE, 5, 0, 4, 1, 1)
    witness = Witness()
    other = replace(state(pid, 0), in_flight=(stuck,), now_ns=10**11)
    witness.tells = SourceReport({0: RankReport(other, "in it")})
    observer = Observer(Path("job"), sources=[witness])
    assert observer.views([LocalRank(0, pid)])[0].sources.disputes == ()
    observer.look_closely(Occasion.FAILURE)
    (view,) = observer.views([LocalRank(0, pid)])
    assert "the hook counts" in view.sources.disputes[0]
    assert view.hook == state(pid, 0)
    observer.views([LocalRank(0, pid)])
    asked = [occasion for _, occasion in witness.asked]
    assert asked == [Occasion.WATCH, Occasion.FAILURE, Occasion.WATCH]


def test_a_rank_that_is_stopped_or_gone_is_not_asked(child: Callable[[str], Child]) -> None:
    stopped, dead = child("input()"), child("input()")
    ranks = [LocalRank(0, stopped.pid), LocalRank(1, dead.pid)]
    witness = Witness()
    witness.tells = SourceReport(
        {r.rank: RankReport(state(r.pid, r.rank), "before") for r in ranks}
    )
    observer = Observer(None, sources=[witness])
    observer.views(ranks)
    os.kill(stopped.pid, signal.SIGSTOP)
    dead.kill()
    dead.wait()
    eventually(lambda: procfs.process_state(stopped.pid).startswith("T"), "it is stopped")
    witness.tells = SourceReport()
    views = observer.views(ranks)
    assert [asked for asked, _ in witness.asked] == [[0, 1], []]
    # What the stopped one said before still holds; of the dead one nothing does.
    assert [v.sources.state for v in views] == ["witness", ""]


def test_a_recorder_of_another_pid_namespace_is_nobodys_of_that_number_here(
    child: Callable[[str], Child], files: dict[Path, HookState | None], tmp_path: Path
) -> None:
    """Its number is some process's here as well: neither dead nor idle may be said of the rank."""
    wrapper, stranger = (child("input()").pid for _ in range(2))
    elsewhere = replace(state(stranger, 0), pid_namespace=own_namespace() + 1)
    files[Path("a.rkhook")] = replace(elsewhere, start_ticks=elsewhere.start_ticks + 1)
    observer = Observer(tmp_path, removes_ended=True)
    (view,) = observer.views([LocalRank(0, wrapper)])
    assert (view.pid, view.alive, view.hook, view.sources.state) == (wrapper, True, None, "")
    assert "namespaces" in view.sources.said[HOOK]
    assert observer.strange == {0}
    assert (observer.discover(), observer.living()) == ((), ())
    lines: list[str] = []
    unwatched = UnwatchedRanks(observer, 5.0, lines.append)
    for now_s in (0.0, 400.0, 800.0):
        unwatched.report(now_s, [view])
    (line,) = lines
    assert line.startswith("rank 0: not watched")


def test_only_processes_that_live_are_named_to_be_ended(
    child: Callable[[str], Child], files: dict[Path, HookState | None]
) -> None:
    """A number that a dead rank has left in its recorder may be another process's by now."""
    living, reused = (child("input()").pid for _ in range(2))
    files[Path("a.rkhook")] = state(living, 0)
    files[Path("b.rkhook")] = replace(state(reused, 1), start_ticks=1)
    observer = Observer(Path("job"))
    assert observer.living() == (living,)
    assert {rank.pid for rank in observer.discover()} == {living, reused}
