"""What a loop has saved is there for its next line, which loads, however slow the save is."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import HashStore

from relkit.errors import DeadlineExceeded, RelkitError
from relkit.flash_checkpoint import checkpointer as base
from relkit.flash_checkpoint import choice, process_memory
from relkit.flash_checkpoint.ddp import DdpCheckpointer, StorageType
from relkit.flash_checkpoint.memory_saver import MemorySaver
from relkit.flash_checkpoint.on_disk import disk
from relkit.flash_checkpoint.rank_group import RankGroup
from relkit.flash_checkpoint.save_handle import SaveHandle, own_saves
from relkit.flash_checkpoint.slots import slot_folder

MEMORY, DISK = StorageType.MEMORY, StorageType.DISK


def state(step: int) -> dict[str, Any]:
    return {"model": torch.full((1000,), float(step)), "step": step}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Makes checkpointers as in a process without a launcher, each of a folder below tmp_path."""
    (tmp_path / "shm").mkdir(mode=0o700)
    monkeypatch.setattr(slot_folder, "_SHARED_MEMORY", tmp_path / "shm")
    monkeypatch.delenv(slot_folder.FOLDER_VARIABLE, raising=False)
    kept: list[DdpCheckpointer] = []

    def make(name: str = "ck") -> DdpCheckpointer:
        kept.append(DdpCheckpointer(tmp_path / name))
        return kept[-1]

    yield make
    for checkpointer in kept:
        checkpointer.close()
    process_memory._left.remove()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A save goes on only when somebody waits for its end."""
    waited_for = threading.Event()
    wait_end = SaveHandle.wait_end

    def noted(handle: SaveHandle, timeout_s: float = 60.0) -> None:
        if not handle.done:
            waited_for.set()
        wait_end(handle, timeout_s)

    def held(act: Callable[..., Any]) -> Callable[..., Any]:
        def after(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            assert waited_for.wait(60)
            return act(*args, **options)

        return after

    monkeypatch.setattr(SaveHandle, "wait_end", noted)
    monkeypatch.setattr(MemorySaver, "_finish", held(MemorySaver._finish))
    monkeypatch.setattr(disk, "publish", held(disk.publish))
    yield
    waited_for.set()


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("kind", [MEMORY, DISK])
def test_a_load_finds_the_save_that_is_under_way(
    made: Callable[..., DdpCheckpointer], kind: StorageType
) -> None:
    checkpointer = made()
    checkpointer.save_checkpoint(1, state(1), storage_type=kind)
    assert checkpointer.load_checkpoint()["step"] == 1


@pytest.mark.usefixtures("slow")
def test_a_file_that_is_being_saved_is_loaded_by_its_name(
    made: Callable[..., DdpCheckpointer], tmp_path: Path
) -> None:
    checkpointer, path = made(), tmp_path / "ck" / "one.pt"
    path.parent.mkdir()
    torch.save(state(1), path)
    checkpointer.save_checkpoint(2, state(2), path, DISK)
    assert checkpointer.load_checkpoint(path)["step"] == 2


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("kind", [MEMORY, DISK])
def test_another_checkpointer_of_the_process_finds_it_too(
    made: Callable[..., DdpCheckpointer], tmp_path: Path, kind: StorageType
) -> None:
    first = made()
    first.save_checkpoint(3, state(3), storage_type=kind)
    (tmp_path / "link").symlink_to("ck")
    second = made("link")
    assert second.load_checkpoint()["step"] == 3
    second.save_checkpoint(4, state(4), storage_type=MEMORY)
    assert first.load_checkpoint()["step"] == 4


def test_what_a_closed_checkpointer_has_saved_stays_for_the_next_one_of_its_folder(
    made: Callable[..., DdpCheckpointer], tmp_path: Path
) -> None:
    made().save_checkpoint(5, state(5), storage_type=MEMORY)
    first = made()
    first.close()
    first.close()
    assert made().load_checkpoint()["step"] == 5


def test_the_memory_of_a_closed_checkpointer_is_freed_by_one_of_another_folder(
    made: Callable[..., DdpCheckpointer], tmp_path: Path
) -> None:
    for number in range(3):
        checkpointer = made(f"ck-{number}")
        checkpointer.save_checkpoint(number, state(number), storage_type=MEMORY).wait()
        assert checkpointer.load_checkpoint()["step"] == number
        checkpointer.close()
    home = slot_folder._home()
    assert len([path for path in home.iterdir() if path.is_dir()]) == 1


def test_a_step_that_could_not_be_saved_is_told_by_the_load(
    made: Callable[..., DdpCheckpointer],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    checkpointer = made()
    checkpointer.save_checkpoint(1, state(1), storage_type=MEMORY)

    def fails(*_: object) -> None:
        raise RelkitError("no room")

    checkpointer._memory_save.wait()
    monkeypatch.setattr(MemorySaver, "_finish", fails)
    checkpointer.save_checkpoint(2, state(2), storage_type=MEMORY)
    assert checkpointer.load_checkpoint()["step"] == 1
    told = capsys.readouterr().err.splitlines()
    line = "relkit: flash checkpoint: step 1 from memory; step 2 could not be saved: no room"
    assert told[-1] == line


@pytest.mark.usefixtures("slow")
def test_a_save_that_does_not_end_is_told_and_nothing_older_is_loaded(
    made: Callable[..., DdpCheckpointer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in (base, choice):
        monkeypatch.setattr(module, "WAIT_S", 0.0)
    go = threading.Event()
    finish = MemorySaver._finish
    monkeypatch.setattr(
        MemorySaver,
        "_finish",
        lambda *args: (go.wait(60), finish(*args)),
    )
    checkpointer = made()
    checkpointer.save_checkpoint(1, state(1), storage_type=MEMORY)
    for name in ("", tmp_path / "ck" / "one.pt"):
        with pytest.raises(DeadlineExceeded, match="the save of step 1 has been under way"):
            checkpointer.load_checkpoint(name)
    go.set()


def test_a_forked_child_waits_for_no_save_of_its_parent(
    made: Callable[..., DdpCheckpointer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_saves(tmp_path).add(SaveHandle(1))
    assert own_saves(tmp_path).wait_end(0.0).late
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert not own_saves(tmp_path).wait_end(0.0).late


def test_a_forked_child_waits_for_nothing_and_leaves_its_parents_store_alone(
    made: Callable[..., DdpCheckpointer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may well load a file by its name, as to evaluate it."""
    checkpointer = made()
    monkeypatch.setattr(base, "WAIT_S", 0.0)
    checkpointer._own_saves.add(SaveHandle(2))
    checkpointer._ranks, checkpointer._disk_calls = RankGroup(1, 2, HashStore(), number=9), 2
    with monkeypatch.context() as child:
        child.setattr(checkpointer, "_pid", os.getpid() + 1)
        child.setattr(RankGroup, "wait_for", None)
        checkpointer._wait_for_own_saves()
    with pytest.raises(DeadlineExceeded):
        checkpointer._wait_for_own_saves()


@pytest.mark.parametrize("made_by_rank_0", [0, 1, 3, 4])
def test_a_save_that_rank_0_does_not_begin_is_not_waited_for_long(
    made: Callable[..., DdpCheckpointer],
    monkeypatch: pytest.MonkeyPatch,
    made_by_rank_0: int,
) -> None:
    """Each rank saves its own best step: some save more often than rank 0."""
    checkpointer, store = made(), HashStore()
    monkeypatch.setattr(base, "_BEGIN_S", 0.0)
    ranks = [RankGroup(rank, 2, store, number=9) for rank in range(2)]
    for number in range(1, made_by_rank_0 + 1):
        for note in (base._begun_on_disk(number), base._ended_on_disk(number)):
            ranks[0].put(note, value=True)
    checkpointer._ranks, checkpointer._disk_calls = ranks[1], 5
    checkpointer._wait_for_own_saves()


def test_a_save_that_rank_0_has_begun_is_waited_for(
    made: Callable[..., DdpCheckpointer], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpointer, store = made(), HashStore()
    ranks = [RankGroup(rank, 2, store, number=9) for rank in range(2)]
    checkpointer._ranks, checkpointer._disk_calls = ranks[1], 1
    monkeypatch.setattr(base, "_BEGIN_S", 0.0)
    ranks[0].put(base._begun_on_disk(1), value=True)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(checkpointer._wait_for_own_saves)
        assert not waits.done()
        ranks[0].put(base._ended_on_disk(1), value=True)
        waits.result()


def test_ranks_that_come_late_are_waited_for_and_one_that_does_not_come_is_named() -> None:
    store = HashStore()
    ranks = [RankGroup(rank, 2, store, number=7) for rank in range(2)]
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(group.meet, group.rank, 60.0) for group in reversed(ranks)]
        assert [future.result() for future in futures] == [[0, 1]] * 2
        with pytest.raises(DeadlineExceeded, match="rank 1 has not answered within"):
            ranks[0].meet(0, 0.05)
        ranks[0].put("disk/1", value=True)
    assert ranks[1].wait_for("disk/1", 0, 5.0) is True


def test_the_file_that_rank_0_saves_is_waited_for_by_the_others(
    made: Callable[..., DdpCheckpointer], tmp_path: Path
) -> None:
    store = HashStore()
    checkpointers = [made(), made("other")]
    for rank, checkpointer in enumerate(checkpointers):
        checkpointer._ranks = RankGroup(rank, 2, store, number=8)
    path = tmp_path / "one.pt"
    checkpointers[1].save_checkpoint(1, state(1), path, DISK)
    with ThreadPoolExecutor(1) as pool:
        loaded = pool.submit(checkpointers[1].load_checkpoint, path)
        assert not path.exists()
        checkpointers[0].save_checkpoint(1, state(1), path, DISK)
        assert loaded.result()["step"] == 1
