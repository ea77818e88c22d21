"""Checkpoints on disk: torch's own format, and a tracker that names a whole file at all times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from relkit.errors import BadInputFile, RelkitError, UnwritablePath
from relkit.flash_checkpoint.ddp import DdpCheckpointer, StorageType
from relkit.flash_checkpoint.on_disk import disk
from relkit.flash_checkpoint.slots.slot_file import SlotFile, WholeSlot
from relkit.flash_checkpoint.write_slot import write_slot
from tests.eager import eager
from tests.flash_checkpoint.jobs.states import rich_state, same, saver_in
from tests.flash_checkpoint.test_slots import one_thread
from tests.patience import PATIENCE

__all__ = ["one_thread"]
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
def test_kills_at_random_moments_tear_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.checkpoints.flash_kills", "--kills", "12", "--persisted",
         "0", "--elements", "200000"],
        cwd=ROOT, env=eager(os.environ), capture_output=True, text=True,
        timeout=100 * PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    tallies = json.loads(done.stdout)
    assert tallies.keys() == {"memory", "disk"}
    for tally in tallies.values():
        assert tally["kills"] >= 12
        assert tally["in_copy"] > 0
        assert tally["wrong"] == tally["lost_steps"] == 0


@pytest.mark.long
def test_a_save_to_disk_is_torchs_own_file_and_comes_back(tmp_path: Path) -> None:
    checkpointer = DdpCheckpointer(tmp_path / "ck")
    wanted = rich_state(3)
    path = tmp_path / "elsewhere" / "three.pt"
    checkpointer.save_checkpoint(3, wanted, path, storage_type=StorageType.DISK).wait()
    checkpointer.close()
    assert same(torch.load(path, weights_only=False), wanted)
    # As in another process: nothing is in memory.
    again = DdpCheckpointer(tmp_path / "ck")
    assert same(again.load_checkpoint(), wanted)
    assert same(again.load_checkpoint(path), wanted)
    again.close()


def test_memory_is_taken_before_an_older_file_and_not_before_a_newer_one(tmp_path: Path) -> None:
    checkpointer = DdpCheckpointer(tmp_path)
    assert checkpointer.load_checkpoint() == {}
    checkpointer.save_checkpoint(1, {"step": 1}, storage_type=StorageType.DISK).wait()
    checkpointer.save_checkpoint(2, {"step": 2}, storage_type=StorageType.MEMORY).wait()
    assert checkpointer.load_checkpoint() == {"step": 2}
    disk.write({"step": 9}, tmp_path / "nine.pt", 9, tmp_path)
    assert checkpointer.load_checkpoint() == {"step": 9}
    checkpointer.close()


def test_a_damaged_slot_is_refused_by_name_and_the_older_one_is_taken(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    checkpointer = DdpCheckpointer(tmp_path)
    for step in (1, 2):
        state = {"step": step, "model": {"weight": torch.full((1000,), step)}}
        checkpointer.save_checkpoint(step, state, storage_type=StorageType.MEMORY).wait()
    slots = checkpointer._memory._path
    data = slots.read_bytes()
    at = data.index((2).to_bytes(8, "little") * 1000)
    slots.write_bytes(data[:at] + b"\3" + data[at + 1 :])
    assert checkpointer.load_checkpoint()["step"] == 1
    checkpointer.close()
    assert "step 1 from memory" in capfd.readouterr().err


def test_a_file_saved_again_is_good_at_every_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "latest.pt"
    disk.write({"step": 1}, path, 1, tmp_path)
    seen: list[int] = []
    replace = Path.replace

    def look_around(self: Path, target: Path) -> Path:
        for _ in range(2):
            found = disk.latest(tmp_path)
            assert found is not None
            assert disk.read(found) == {"step": found.step}
            seen.append(found.step)
            if len(seen) % 2:
                replace(self, target)
        return target

    monkeypatch.setattr(Path, "replace", look_around)
    disk.write({"step": 2}, path, 2, tmp_path)
    # Before and after the renames of: the tracker that names both, the file, the tracker.
    assert seen == [1, 1, 1, 2, 2, 2]


def test_a_path_that_cannot_be_written_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    disk.write({"step": 1}, tmp_path / "one.pt", 1, tmp_path)
    with pytest.raises(UnwritablePath, match=r"two\.pt"):
        disk.write({"step": 2}, tmp_path / "one.pt" / "two.pt", 2, tmp_path)
    found = disk.latest(tmp_path)
    assert found is not None
    assert disk.read(found) == {"step": 1}


def test_what_changes_while_it_is_written_is_never_visible(tmp_path: Path) -> None:
    saver = saver_in(tmp_path)
    locked: list[tuple[SlotFile, WholeSlot]] = []
    saver.save(1, {"step": 1}, lambda *slot: locked.append(slot)).wait()
    saver.save(2, {"step": 2}).wait()
    saver.adopt(2)  # the job goes on from another step: this one is given up
    disk.write({"step": 0}, tmp_path / "zero.pt", 0, tmp_path)
    ((file, slot),) = locked
    with pytest.raises(UnwritablePath, match="step 1 is not on disk: it was given up"):
        write_slot(file, slot, tmp_path / "one.pt", tmp_path)
    saver.close()
    named = disk.latest(tmp_path)
    assert named is not None
    assert named.step == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        disk.TRACKER, "rank-1.slots", "zero.pt",
    ]  # fmt: skip


def test_a_disk_that_does_not_answer(tmp_path: Path) -> None:
    saver = saver_in(tmp_path)
    locked: list[tuple[SlotFile, WholeSlot]] = []
    saver.save(1, {"step": 1}, lambda *slot: locked.append(slot)).wait()
    saver.close()
    ((file, slot),) = locked
    with pytest.raises(UnwritablePath, match=r"step 1 is not on disk: .* within 0\.1 s"):
        write_slot(file, slot, tmp_path / "one.pt", tmp_path, timeout_s=0.1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank-1.slots"]


def test_of_two_writers_of_one_file_the_later_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "one.pt"

    def write_again() -> None:
        disk.write({"step": 2}, path, 2, tmp_path)

    with pytest.raises(UnwritablePath):
        disk.write({"step": 1}, path, 1, tmp_path, write_again)
    named = disk.latest(tmp_path)
    assert named is not None
    assert disk.read(named) == {"step": 2}


class Payload:
    """What a hostile file would execute."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


def test_a_file_that_would_call_something_is_refused(tmp_path: Path) -> None:
    torch.save({"x": Payload()}, tmp_path / "hostile.pt")
    checkpointer = DdpCheckpointer(tmp_path)
    with pytest.raises(BadInputFile, match="system"):
        checkpointer.load_checkpoint(tmp_path / "hostile.pt")
    checkpointer.close()


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"schema":"relkit.flash_checkpoint/1"}'])
def test_a_tracker_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / disk.TRACKER).write_text(text)
    with pytest.raises(BadInputFile, match=disk.TRACKER):
        disk.latest(tmp_path)


def test_memory_serves_where_the_tracker_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / disk.TRACKER).write_text("?")
    checkpointer = DdpCheckpointer(tmp_path)
    with pytest.raises(BadInputFile, match=disk.TRACKER):
        checkpointer.load_checkpoint()
    checkpointer.save_checkpoint(1, {"step": 1}, storage_type=StorageType.MEMORY).wait()
    assert checkpointer.load_checkpoint() == {"step": 1}
    checkpointer.close()


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    disk.write({"step": 1}, tmp_path / "one.pt", 1, tmp_path)
    with (tmp_path / "one.pt").open("r+b") as stream:
        stream.seek(300)
        stream.write(b"!")
    found = disk.latest(tmp_path)
    assert found is not None
    with pytest.raises(BadInputFile, match="not what was written"):
        disk.read(found)


def test_a_failed_save_to_disk_is_reported_and_the_loop_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    checkpointer = DdpCheckpointer(tmp_path)
    (tmp_path / "file").touch()
    handle = checkpointer.save_checkpoint(1, {"step": 1}, tmp_path / "file" / "one.pt")
    with pytest.raises(RelkitError, match="step 1 is not on disk: cannot write"):
        handle.wait()
    assert checkpointer.load_checkpoint() == {"step": 1}
    checkpointer.close()
    assert capfd.readouterr().err.count("is not on disk") == 1
