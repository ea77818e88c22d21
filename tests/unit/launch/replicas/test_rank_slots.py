"""A launcher looks into its ranks' slots for as long as the job runs: no file stays open behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from relkit.flash_checkpoint.memory_saver import MemorySaver
from relkit.flash_checkpoint.slots import slot_folder
from relkit.flash_checkpoint.slots.errors import BadSlot, SlotFault
from relkit.flash_checkpoint.slots.slot_file import SlotFile
from relkit.flash_checkpoint.slots.slot_format import Owner
from relkit.launch.replicas import rank_slots
from relkit.launch.replicas.rank_slots import RankSlots

pytestmark = pytest.mark.timeout(60)

RANK, WORLD = 1, 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "job"
    path.mkdir(mode=0o700)
    save(path, 3, elements=1000)
    return path


def save(folder: Path, step: int, *, elements: int) -> None:
    """As a rank that has just started."""
    owner = slot_folder.owner(folder, RANK, WORLD)
    saver = MemorySaver(slot_folder.slots_path(folder, RANK), owner, threads=1)
    saver.save(step, {"w": torch.full((elements,), float(step))}).wait()
    saver.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[SlotFile]:
    """All files of slots that are opened for reading from now on."""
    files: list[SlotFile] = []
    really_open = SlotFile.open

    def note(path: Path, owner: Owner, *, writable: bool = False) -> SlotFile:
        file = really_open(path, owner, writable=writable)
        if not writable:
            files.append(file)
        return file

    monkeypatch.setattr(SlotFile, "open", note)
    return files


def are_open(files: list[SlotFile]) -> list[bool]:
    return [file._close.alive for file in files]


def test_a_file_that_is_replaced_is_closed(folder: Path, opened: list[SlotFile]) -> None:
    slots = RankSlots(folder, [RANK], WORLD)
    assert slots.steps() == slots.steps() == {RANK: [3]}
    # More than the slots of the first file hold: another file takes its name.
    save(folder, 4, elements=1_000_000)
    assert slots.newest() == 4
    assert are_open(opened) == [False, True]


def test_a_file_that_is_removed_is_closed(folder: Path, opened: list[SlotFile]) -> None:
    slots = RankSlots(folder, [RANK], WORLD)
    assert slots.steps() == {RANK: [3]}
    slot_folder.slots_path(folder, RANK).unlink()
    assert slots.steps() == {RANK: []}
    assert are_open(opened) == [False]


@pytest.mark.parametrize("error", [BadSlot(SlotFault.DAMAGED, "torn"), OSError("no locks")])
@pytest.mark.parametrize("fails", ["whole", "lock"])
def test_a_slot_that_cannot_be_locked_leaves_no_file_open(
    folder: Path,
    opened: list[SlotFile],
    monkeypatch: pytest.MonkeyPatch,
    fails: str,
    error: Exception,
) -> None:
    def fail(_file: SlotFile, *_arguments: object) -> None:
        raise error

    monkeypatch.setattr(SlotFile, fails, fail)
    monkeypatch.setattr(rank_slots, "_LOCKABLE", 0)
    with pytest.raises(BadSlot):
        RankSlots(folder, [RANK], WORLD).locked(RANK, 3)
    assert are_open(opened) == [False]


def test_a_slot_is_free_again_once_it_is_closed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_slots, "_LOCKABLE", 0)
    saver = SlotFile.open(
        slot_folder.slots_path(folder, RANK), slot_folder.owner(folder, RANK, WORLD)
    )
    (slot,) = saver.whole()
    locked = RankSlots(folder, [RANK], WORLD).locked(RANK, 3)
    assert saver.is_locked(slot.index)
    locked.close()
    # Also while somebody still has the object, and with it the file's mapping.
    assert not saver.is_locked(slot.index)
    assert locked.header.step == 3


def test_a_step_that_is_gone_leaves_no_file_open(folder: Path, opened: list[SlotFile]) -> None:
    with pytest.raises(BadSlot, match="does not have step 9 any more"):
        RankSlots(folder, [RANK], WORLD).locked(RANK, 9)
    assert are_open(opened) == [False]
