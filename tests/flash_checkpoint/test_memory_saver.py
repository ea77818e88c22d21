"""Saves into memory: the state at the call is what is saved, and nothing takes it away."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from relkit.errors import DeadlineExceeded, UnwritablePath, UsageProblem
from relkit.flash_checkpoint import memory_saver
from relkit.flash_checkpoint.memory_saver import MemorySaver
from relkit.flash_checkpoint.rank_memory import RankMemory
from relkit.flash_checkpoint.save_handle import SaveHandle
from relkit.flash_checkpoint.slots import native_copy, slot_folder
from relkit.flash_checkpoint.slots import slot_format as form
from relkit.flash_checkpoint.slots.errors import ChangedWhileCopied, NoRoom
from relkit.flash_checkpoint.slots.native_copy import CopyPool
from relkit.flash_checkpoint.slots.slot_file import SlotFile, WholeSlot
from relkit.launch.flash_checkpoint.slot_host import SlotHost
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.settings import LocalRank
from tests.eager import eager
from tests.flash_checkpoint.jobs.states import OWNER, loaded, same, saver_in
from tests.flash_checkpoint.test_slots import everything_in, one_thread
from tests.patience import PATIENCE

__all__ = ["one_thread"]
LARGE = 2 << 20


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[MemorySaver]:
    made = saver_in(tmp_path)
    yield made
    made.close()


def trained(elements: int) -> tuple[torch.nn.Parameter, torch.optim.Optimizer]:
    """A parameter whose optimizer the saver has seen at work."""
    weight = torch.nn.Parameter(torch.ones(elements))
    optimizer = torch.optim.SGD([weight], lr=1.0, momentum=0.9)
    step(weight, optimizer)
    return weight, optimizer


def step(weight: torch.nn.Parameter, optimizer: torch.optim.Optimizer) -> None:
    weight.grad = torch.ones_like(weight)
    optimizer.step()


def test_the_optimizers_step_waits_for_the_copy(tmp_path: Path, saver: MemorySaver) -> None:
    weight, optimizer = trained(LARGE)
    for number in range(4):
        wanted = weight.detach().clone()
        handle = saver.save(number, {"weight": weight.detach(), "opt": optimizer.state_dict()})
        step(weight, optimizer)
        assert handle.done
        assert handle.failure is None
        state = loaded(tmp_path)
        assert same(state["weight"], wanted)
        assert not same(state["weight"], weight.detach())
        assert same(state["opt"]["param_groups"], optimizer.state_dict()["param_groups"])


def test_a_buffer_is_copied_before_save_returns(tmp_path: Path, saver: MemorySaver) -> None:
    weight, _ = trained(LARGE)
    buffer = torch.zeros(100_000)
    handle = saver.save(1, {"weight": weight.detach(), "buffer": buffer})
    buffer.data.fill_(1.0)  # as native code writes: no version counter moves
    handle.wait()
    assert loaded(tmp_path)["buffer"].sum() == 0


def test_a_tensor_that_changes_while_it_is_copied(
    tmp_path: Path, saver: MemorySaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, _ = trained(1000)
    saver.save(1, {"weight": weight.detach()}).wait()
    begin = MemorySaver._begin

    def begin_and_write(self: MemorySaver, copy: memory_saver._Copy) -> None:
        begin(self, copy)
        with torch.no_grad():
            weight.add_(1.0)

    monkeypatch.setattr(MemorySaver, "_begin", begin_and_write)
    handle = saver.save(2, {"all": {"weight": weight.detach()}})
    with pytest.raises(ChangedWhileCopied, match=r"step 2 .* all/weight changed"):
        handle.wait()
    assert [one["weight"][0] for one in everything_in(tmp_path / "rank-1.slots")] == [0.0]
    monkeypatch.undo()
    saver.save(3, {"weight": weight.detach()}).wait()
    assert loaded(tmp_path)["weight"][0] == 1.0


def test_a_save_never_touches_the_newest_whole_slot(tmp_path: Path, saver: MemorySaver) -> None:
    path = tmp_path / "rank-1.slots"
    for number in range(5):
        saver.save(number, {"step": number}).wait()
    file = SlotFile.open(path, OWNER)
    assert [slot.header.step for slot in file.whole()] == [4, 3]
    assert file.free_slot() == file.whole()[1].index


def test_a_larger_state_needs_a_new_file_and_the_old_one_serves_until_then(
    tmp_path: Path, saver: MemorySaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rank-1.slots"
    saver.save(1, {"x": torch.zeros(10)}).wait()
    publish = native_copy.publish

    def look_first(address: int, header: bytes) -> None:
        assert [len(one["x"]) for one in everything_in(path)] == [10]
        publish(address, header)

    monkeypatch.setattr(native_copy, "publish", look_first)
    saver.save(2, {"x": torch.zeros(1 << 20)}).wait()
    monkeypatch.undo()
    saver.save(3, {"x": torch.zeros(5)}).wait()
    assert [len(one["x"]) for one in everything_in(path)] == [5, 1 << 20]
    assert [slot.header.sequence for slot in SlotFile.open(path, OWNER).whole()] == [3, 2]
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_slot_that_is_being_written_to_disk_stays(tmp_path: Path, saver: MemorySaver) -> None:
    kept: list[tuple[SlotFile, WholeSlot]] = []
    saver.save(1, {"step": 1}, lambda *slot: kept.append(slot)).wait()
    for number in range(2, 8):
        saver.save(number, {"step": number}).wait()
    steps = [one["step"] for one in everything_in(tmp_path / "rank-1.slots")]
    assert steps == [7, 6, 1]
    ((file, slot),) = kept
    file.unlock(slot.index)
    for number in (8, 9):
        saver.save(number, {"step": number}).wait()
    steps = [one["step"] for one in everything_in(tmp_path / "rank-1.slots")]
    assert steps == [9, 8, 7]


def test_a_slot_that_another_process_reads_stays(tmp_path: Path, saver: MemorySaver) -> None:
    path = tmp_path / "rank-1.slots"
    saver.save(1, {"step": 1}).wait()
    reader = SlotFile.open(path, OWNER, writable=True)
    reader.lock(reader.whole()[0].index)
    # A killed rank leaves such a process behind: it is writing the slot to disk.
    keeper = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(reader.fileno(),)
    )
    del reader
    for number in range(2, 6):
        saver.save(number, {"step": number}).wait()
    assert [one["step"] for one in everything_in(path)] == [5, 4, 1]
    keeper.communicate(b"\n", timeout=60 * PATIENCE)
    for number in (6, 7):
        saver.save(number, {"step": number}).wait()
    assert [one["step"] for one in everything_in(path)] == [7, 6, 5]


def test_the_next_process_goes_on_from_the_slot_that_it_names(tmp_path: Path) -> None:
    first = saver_in(tmp_path)
    for number in (1, 2):
        first.save(number, {"step": number}).wait()
    first.close()
    path = tmp_path / "rank-1.slots"
    older = SlotFile.open(path, OWNER).whole()[1]
    second = saver_in(tmp_path)
    second.adopt(older.header.sequence)
    assert [one["step"] for one in everything_in(path)] == [1]
    second.save(2, {"step": 2, "again": True}).wait()
    assert [one["step"] for one in everything_in(path)] == [2, 1]
    second.close()
    third = saver_in(tmp_path)  # starts from scratch: the slots are another run's
    third.save(1, {"step": 1}).wait()
    assert [one["step"] for one in everything_in(path)] == [1]
    third.close()


def test_shared_memory_that_is_too_small_is_refused_before_anything_is_written(
    tmp_path: Path, saver: MemorySaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Small:
        f_bavail, f_frsize = 10, 4096

    monkeypatch.setattr(os, "statvfs", lambda _path: Small)
    with pytest.raises(NoRoom, match=r"8,\d{3},\d{3} bytes are needed, and 40,960 are free"):
        saver.save(1, {"x": torch.zeros(1 << 20)})
    assert list(tmp_path.iterdir()) == []


def tell_when_populated(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once the memory of the slot after the one that was saved into has been made."""
    event, populate = threading.Event(), SlotFile.populate

    def then_tell(self: SlotFile, index: int, end_bytes: int, stop: Callable[[], bool]) -> None:
        populate(self, index, end_bytes, stop)
        event.set()

    monkeypatch.setattr(SlotFile, "populate", then_tell)
    return event


def test_after_a_lack_of_room_a_save_fails_at_once(
    tmp_path: Path, saver: MemorySaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, _ = trained(LARGE)
    state = {"weight": weight.detach()}
    allocate = os.posix_fallocate

    def refuse(descriptor: int, offset: int, size_bytes: int) -> None:
        if size_bytes > form.PAGE_BYTES:
            raise OSError(errno.ENOSPC, "full")
        allocate(descriptor, offset, size_bytes)

    with monkeypatch.context() as full:
        full.setattr(os, "posix_fallocate", refuse)
        with pytest.raises(NoRoom):
            saver.save(1, state)
    with monkeypatch.context() as told:
        # The saver's thread goes on after a save: it makes the memory of the next one.
        is_populated = tell_when_populated(told)
        saver.save(2, state).wait()
        assert is_populated.wait(10 * PATIENCE)
    reserve = SlotFile.reserve

    def small(self: SlotFile, index: int, end_bytes: int) -> None:
        if end_bytes > LARGE:
            raise NoRoom("full")
        reserve(self, index, end_bytes)

    # The weight is copied while the loop runs: the first lack of room is noticed only there.
    with monkeypatch.context() as full:
        full.setattr(SlotFile, "reserve", small)
        assert isinstance(finished(saver.save(3, state)).failure, NoRoom)
        with pytest.raises(NoRoom):
            saver.save(4, state)
    assert loaded(tmp_path)["weight"].equal(weight.detach())


def finished(handle: SaveHandle) -> SaveHandle:
    handle.wait_end(60 * PATIENCE)
    return handle


def test_the_optimizer_steps_after_the_deadline_and_the_slot_is_not_used(
    tmp_path: Path, saver: MemorySaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, optimizer = trained(1000)
    saver.save(1, {"weight": weight.detach()}).wait()
    may_copy = threading.Event()
    copy = CopyPool.save

    def late(self: CopyPool, *arguments: Any) -> None:  # noqa: ANN401
        assert may_copy.wait(60 * PATIENCE)
        copy(self, *arguments)

    monkeypatch.setattr(CopyPool, "save", late)
    monkeypatch.setattr(memory_saver, "WAIT_S", 0.2)
    handle = saver.save(2, {"weight": weight.detach()})
    with pytest.raises(DeadlineExceeded, match="the save of step 2 has been under way"):
        handle.wait(0.0)
    step(weight, optimizer)
    assert not handle.done
    with pytest.raises(DeadlineExceeded):
        saver.save(3, {})
    may_copy.set()
    with pytest.raises(ChangedWhileCopied, match="weight"):
        handle.wait(60 * PATIENCE)
    monkeypatch.setattr(memory_saver, "WAIT_S", 60 * PATIENCE)
    assert [
        slot.header.step for slot in SlotFile.open(tmp_path / "rank-1.slots", OWNER).whole()
    ] == [1]


def test_a_closed_saver_refuses(tmp_path: Path) -> None:
    saver = saver_in(tmp_path)
    saver.save(1, {}).wait()
    saver.close()
    with pytest.raises(UsageProblem, match="closed"):
        saver.save(2, {})


def test_a_failure_is_reported_once_whenever_it_comes() -> None:
    reported: list[Exception] = []
    early, late = SaveHandle(1), SaveHandle.ended(2, NoRoom("full"))
    early.on_failure(reported.append)
    assert reported == []
    early.end(NoRoom("full"))
    late.on_failure(reported.append)
    SaveHandle.ended(3).on_failure(reported.append)
    assert [type(error) for error in reported] == [NoRoom, NoRoom]


FILE_LIMIT = """
import resource, sys, torch
from pathlib import Path
from relkit.flash_checkpoint.slots.errors import NoRoom
from tests.flash_checkpoint.jobs.states import loaded, saver_in
folder = Path(sys.argv[1])
saver = saver_in(folder)
saver.save(1, {"x": torch.zeros(1000)}).wait()
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    saver.save(2, {"x": torch.zeros(1 << 20)}).wait()
except NoRoom as error:
    print(error)
saver.save(3, {"x": torch.ones(1000)}).wait()
print(loaded(folder)["x"].sum().item(), sorted(path.name for path in folder.iterdir()))
saver.close()
"""


@pytest.mark.long
def test_a_limit_on_files_leaves_what_there_is(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILE_LIMIT, str(tmp_path)], env=eager(os.environ),
        capture_output=True, text=True, timeout=60 * PATIENCE, check=True,
    )  # fmt: skip
    refusal, left = done.stdout.splitlines()
    assert "bytes are needed" in refusal
    assert "File too large" in refusal
    assert left == "1000.0 ['rank-1.slots']"


def test_of_two_savers_of_one_rank_the_second_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv(slot_folder.FOLDER_VARIABLE, str(tmp_path))
    left = tmp_path / "rank-0.new"
    left.touch()  # by a process that was killed during its first save
    first, second = RankMemory(0, 1, 1), RankMemory(0, 1, 1)
    first.save(1, {}).wait()
    assert not left.exists()
    failure = second.save(1, {}).failure
    assert "another saver of this process" in str(failure)
    first.close()
    second.save(2, {}).wait()
    second.close()


def test_a_killed_owners_folder_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_folder, "_SHARED_MEMORY", tmp_path)
    lives = slot_folder.make("job")
    left = slot_folder.make("job")
    os.close(left.lock)  # as the kernel does for a process that was killed
    again = slot_folder.make("job")
    assert not left.path.exists()
    assert set(slot_folder.folders_of("job")) == {lives.path, again.path}
    lives.remove()
    again.remove()
    assert slot_folder.folders_of("job") == ()


def test_a_folder_that_another_owner_holds_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_folder, "_SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(slot_folder, "_LOCK_WAIT_S", 0.1)
    slot_folder.make("job").remove()
    (home,) = tmp_path.iterdir()
    with (home / ".lock").open() as held:  # by one who is stopped
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UnwritablePath, match="no folder for checkpoints in memory"):
            slot_folder.make("job")
    slot_folder.make("job").remove()


def attempt_of(*ranks: int) -> Attempt:
    return Attempt("job", 3, tuple(LocalRank(rank, 0) for rank in ranks))


def test_a_rank_that_has_left_this_node_leaves_no_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_folder, "_SHARED_MEMORY", tmp_path)
    host = SlotHost(lambda _line: None)
    folder = Path(host.begin(attempt_of(0, 1))[slot_folder.FOLDER_VARIABLE])
    for rank in (0, 1):
        slot_folder.slots_path(folder, rank).touch()
    assert host.begin(attempt_of(1, 2)) == {slot_folder.FOLDER_VARIABLE: str(folder)}
    assert sorted(path.name for path in folder.iterdir()) == ["owner.lock", "rank-1.slots"]
    host.close()
    assert not folder.exists()


def test_a_launcher_without_shared_memory_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_folder, "_SHARED_MEMORY", tmp_path / "none")
    lines: list[str] = []
    host = SlotHost(lines.append)
    assert host.begin(attempt_of(0)) == {}
    assert host.begin(attempt_of(0)) == {}
    assert len(lines) == 1
    assert "no folder for checkpoints in memory" in lines[0]
    host.close()
