"""What a killed launcher has left in memory: the next one of the same job goes on from it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from relkit.flash_checkpoint import destination
from relkit.flash_checkpoint.rank_memory import RankMemory
from relkit.flash_checkpoint.slots import slot_folder
from relkit.launch.flash_checkpoint.slot_host import SlotHost
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.settings import LocalRank
from relkit.process import procfs
from tests.cluster.conftest import Start, orphans_come_to_us, start, until
from tests.flash_checkpoint.test_ddp_jobs import JOB, NEVER, STEPS, losses, starts, torchrun

__all__ = ["orphans_come_to_us", "start"]
FREE_PART = slot_folder._FREE_PART
LEFT = re.compile(r"step (\d+) is still in memory, left by a launcher of job \S+ that was killed")


@pytest.fixture(autouse=True)
def shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(slot_folder, "_SHARED_MEMORY", folder)
    # It is on a disk, which may be nearly full.
    monkeypatch.setattr(slot_folder, "_FREE_PART", 0.0)
    return folder


class Launcher:
    """One launcher's part in the slots; `kill` ends it as SIGKILL does."""

    def __init__(self, *ranks: int, world_size: int = 2, job_id: str = "job") -> None:
        self.lines: list[str] = []
        self.host = SlotHost(self.lines.append)
        self.world_size = world_size
        self._attempt = Attempt(job_id, world_size, tuple(LocalRank(rank, 0) for rank in ranks))
        self.environ: Mapping[str, str] = {}
        self.begin()

    def begin(self) -> None:
        """Begin an attempt; the first one is begun already."""
        self.environ = self.host.begin(self._attempt)

    @property
    def folder(self) -> Path:
        return Path(self.environ[slot_folder.FOLDER_VARIABLE])

    def memory(self, rank: int, root: Path) -> RankMemory:
        return RankMemory(rank, self.world_size, 1, root)

    def kill(self) -> None:
        own = self.host._folder
        assert own is not None
        os.close(own.lock)  # as the kernel does for a process that was killed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "ck"


def save(
    launcher: Launcher, root: Path, monkeypatch: pytest.MonkeyPatch, steps_of: dict[int, list[int]]
) -> None:
    """Have ranks save steps."""
    monkeypatch.setenv(slot_folder.FOLDER_VARIABLE, str(launcher.folder))
    for rank, steps in steps_of.items():
        memory = launcher.memory(rank, root)
        for step in steps:
            memory.save(step, {"weight": torch.full((8,), step)}).wait()
        memory.close()


@pytest.fixture
def left(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a killed launcher whose two ranks had saved step 3, and one of them step 4."""
    launcher = Launcher(0, 1)
    save(launcher, root, monkeypatch, {0: [3], 1: [3, 4]})
    launcher.kill()
    return launcher.folder


def test_the_next_launcher_of_the_job_takes_it_over(
    left: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = Launcher(0, 1)
    assert launcher.folder == left
    (line,) = launcher.lines
    assert LEFT.search(line)[1] == "3"  # type: ignore[index]
    for name, value in launcher.environ.items():
        monkeypatch.setenv(name, value)
    memory = launcher.memory(1, root)
    slots, refused = memory.slots()
    assert (sorted(slots), refused) == ([3, 4], [])
    state, why = memory.load(slots[3])
    assert not why
    assert torch.equal(state["weight"], torch.full((8,), 3))
    memory.close()
    launcher.begin()
    assert launcher.lines == [line]
    launcher.host.close()
    assert not left.exists()


def test_slots_that_others_may_read_are_not_used_and_it_is_said(
    left: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = Launcher(0, 1)
    for name, value in launcher.environ.items():
        monkeypatch.setenv(name, value)
    memory = launcher.memory(1, root)
    (left / "rank-1.slots").chmod(0o644)
    slots, (refused,) = memory.slots()
    assert slots == {}
    assert str(left / "rank-1.slots") in refused
    assert "other users may read or write it" in refused
    memory.close()


@pytest.mark.parametrize(("free", "is_stale"), [(0.51, False), (0.49, True), (1.0, False)])
def test_what_was_left_goes_at_once_where_less_than_half_of_the_memory_is_free(
    left: Path, monkeypatch: pytest.MonkeyPatch, *, free: float, is_stale: bool
) -> None:
    # As it is outside of these tests.
    monkeypatch.setattr(slot_folder, "_FREE_PART", FREE_PART)
    memory = SimpleNamespace(f_bavail=free * 1000, f_blocks=1000)
    monkeypatch.setattr(os, "statvfs", lambda folder: memory)
    assert slot_folder._is_stale(left) is is_stale


def test_checkpoints_in_another_folder_do_not_begin_with_it(
    left: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = Launcher(0, 1)
    assert launcher.folder == left
    for name, value in launcher.environ.items():
        monkeypatch.setenv(name, value)
    memory = launcher.memory(0, tmp_path / "another")
    slots, (refused,) = memory.slots()
    assert not slots
    assert f"whose checkpoints are in {root}" in refused
    memory.adopt(None)
    memory.save(1, {}).wait()
    memory.close()
    # What its own ranks have saved serves them in any folder.
    memory = launcher.memory(0, tmp_path / "a third one")
    assert sorted(memory.slots()[0]) == [1]
    memory.close()
    launcher.host.close()


def remove_the_checkpoints(_left: Path, root: Path) -> None:
    shutil.rmtree(root)


def begin_the_checkpoints_anew(left: Path, root: Path) -> None:
    shutil.rmtree(root)
    destination.leave(left.parent, 0, root)


def tear(left: Path, _root: Path) -> None:
    with slot_folder.slots_path(left, 0).open("r+b") as file:
        file.write(b"\0" * 64)


def lose_a_note(left: Path, _root: Path) -> None:
    (left / "rank-0.destination").unlink()


def plant_a_note(left: Path, _root: Path) -> None:
    (left / "rank-0.destination").write_text(json.dumps([1, 2]))


@pytest.mark.parametrize(
    "spoil",
    [remove_the_checkpoints, begin_the_checkpoints_anew, tear, lose_a_note, plant_a_note],
)
def test_it_is_removed_where_it_is_of_no_use(
    left: Path, root: Path, spoil: Callable[[Path, Path], None]
) -> None:
    spoil(left, root)
    launcher = Launcher(0, 1)
    assert launcher.folder != left
    assert not left.exists()
    assert launcher.lines == []
    launcher.host.close()


@pytest.mark.parametrize("world_size", [1, 3])
def test_a_job_of_another_size_begins_without_it(left: Path, world_size: int) -> None:
    launcher = Launcher(*range(world_size), world_size=world_size)
    assert launcher.folder != left
    assert not left.exists()
    launcher.host.close()


def test_what_is_another_launchers_of_the_job_is_left_to_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = [Launcher(0), Launcher(1)]
    for rank, launcher in enumerate(killed):
        save(launcher, root, monkeypatch, {rank: [3]})
    for launcher in killed:
        launcher.kill()
    again = [Launcher(0), Launcher(1)]
    assert [launcher.folder for launcher in again] == [launcher.folder for launcher in killed]
    for launcher in again:
        launcher.host.close()


def test_another_job_leaves_it_alone_for_a_while(left: Path) -> None:
    def another() -> None:
        launcher = Launcher(0, 1, job_id="another")
        assert launcher.folder != left
        launcher.host.close()

    another()
    another()
    assert left.exists()
    mark = left / slot_folder._LEFT_MARK
    os.utime(mark, (mark.stat().st_atime, mark.stat().st_mtime - slot_folder._LEFT_ALONE_S - 1))
    another()
    assert not left.exists()


def test_another_job_removes_it_where_memory_is_short(
    left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_folder, "_FREE_PART", 1.1)
    launcher = Launcher(0, 1, job_id="another")
    assert not left.exists()
    launcher.host.close()


def test_it_is_taken_over_although_another_job_came_first(left: Path) -> None:
    launchers = [Launcher(0, 1, job_id="another"), Launcher(0, 1)]
    assert launchers[1].folder == left
    assert not (left / slot_folder._LEFT_MARK).exists()
    for launcher in launchers:
        launcher.host.close()


def test_a_launcher_that_lives_keeps_its_own(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lives = Launcher(0, 1)
    save(lives, root, monkeypatch, {0: [3], 1: [3]})
    launcher = Launcher(0, 1)
    assert launcher.folder != lives.folder
    assert lives.folder.exists()
    for each in (lives, launcher):
        each.host.close()


@pytest.mark.long
@pytest.mark.job
@pytest.mark.root
@pytest.mark.timeout(200)
def test_a_job_goes_on_from_what_a_killed_launcher_left(
    start: Start, tmp_path: Path, shared_memory: Path
) -> None:
    # Both launchers have this memory to themselves: others on this host may be short of it.
    script = f'mount --bind {shared_memory} /dev/shm && exec "$@"'
    program = ("unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-m", "relkit")
    plain = torchrun(tmp_path / "plain", str(STEPS), NEVER)
    assert plain.code == 0, plain.err
    job = f"killed-launcher-{os.getpid()}"
    line = ("launch", "--nproc-per-node", "2", "--rdzv-id", job,
            "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0",
            "--timeline-path", tmp_path / "timeline", JOB, tmp_path / "ck", str(STEPS))  # fmt: skip
    stop = "0:0:5:stop-saved,0:1:5:stop-saved"
    first = start(*line, NEVER, stop, program=program)
    until(lambda: first.text.count("stopped\n") == 2, first)
    workers = procfs.descendants(first.process.pid)
    first.process.send_signal(signal.SIGKILL)
    before = first.wait(30)
    until(lambda: all(procfs.process(pid).state in ("", "Z") for pid in workers))
    done = start(*line, NEVER, program=program).wait(90)
    assert done.code == 0, done.err
    assert LEFT.search(done.err)[1] == "5", done.err  # type: ignore[index]
    assert starts(done)[-1] == "step 5 from memory"
    assert losses(before, done) == losses(plain)
    assert slot_folder.folders_of(job) == ()
