"""relkit ckpt memory: what a job's ranks have in shared memory, read without changing it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from relkit.cli import cli
from relkit.errors import BadInputFile
from relkit.flash_checkpoint.memory_saver import MemorySaver
from relkit.flash_checkpoint.replicas.copy_folder import CopyFolder
from relkit.flash_checkpoint.slots import slot_folder
from relkit.flash_checkpoint.slots.slot_file import SlotFile
from relkit.launch.replicas.rank_slots import RankSlots

JOB = "ckpt-memory"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Rank 0 has saved steps 1 and 2, rank 1 steps 1, 2 and 3."""
    own = slot_folder.make(JOB)
    for rank, steps in ((0, 2), (1, 3)):
        saver = MemorySaver(
            slot_folder.slots_path(own.path, rank), slot_folder.owner(own.path, rank, 2), 1
        )
        for step in range(1, steps + 1):
            saver.save(step, {"w": torch.ones(1000) * step}).wait()
        saver.close()
    yield own.path
    own.remove()


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["ckpt", "memory", *arguments], standalone_mode=False)


def file_of(folder: Path, rank: int) -> Path:
    return slot_folder.slots_path(folder, rank)


def test_each_slot_has_a_row_and_the_common_step_is_named(folder: Path) -> None:
    before = [path.stat() for path in sorted(folder.iterdir())]
    result = invoke(JOB)
    assert result.return_value == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["RANK", "SLOT", "STATE", "STEP", "AGE", "SAVE", "SIZE", "FOLDER"]
    assert sorted((row[0], row[3]) for row in rows[1:]) == [
        ("0", "1"), ("0", "2"), ("1", "2"), ("1", "3"),
    ]  # fmt: skip
    assert "step 2 is whole in memory on all of rank 0-1 on this host" in result.stderr
    after = [path.stat() for path in sorted(folder.iterdir())]
    assert [(s.st_mtime_ns, s.st_ctime_ns) for s in after] == [
        (s.st_mtime_ns, s.st_ctime_ns) for s in before
    ]


def test_json_has_the_slots_with_their_ages(folder: Path) -> None:
    plain = json.loads(invoke(JOB, "--json").stdout)
    assert (plain["job_id"], plain["step"]) == (JOB, 2)
    assert [finding["id"] for finding in plain["findings"]] == ["RK-FLASH-003"]
    slots = plain["slots"]
    assert {slot["state"] for slot in slots} == {"whole"}
    assert {slot["folder"] for slot in slots} == {str(folder)}
    assert all(0 <= slot["age_s"] < 600 and slot["size_bytes"] >= 4000 for slot in slots)
    assert {slot["world_size"] for slot in slots} == {2}


def test_copies_for_other_hosts_are_listed_with_whose_they_are(folder: Path) -> None:
    copies = CopyFolder(folder, 2)
    copies.say_whose({0: "h1", 1: "h2"}, [0])
    for rank in (0, 1):
        slot = RankSlots(folder, [rank], 2).locked(rank, 2)
        copies.add(rank, "ab" * 16, slot.header, slot.read_into, keep="", spare_bytes=0)
        slot.close()
    rows = [line.split("  ") for line in invoke(JOB).stdout.splitlines()[-2:]]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert [row[:4] for row in cells] == [
        ["0", "-", "own copy", "2"], ["1", "-", "replica of h2", "2"],
    ]  # fmt: skip
    replicas = json.loads(invoke(JOB, "--json").stdout)["replicas"]
    assert [(r["rank"], r["node"], r["is_own"], r["step"]) for r in replicas] == [
        (0, "h1", True, 2), (1, "h2", False, 2),
    ]  # fmt: skip
    assert all(0 <= replica["age_s"] < 600 for replica in replicas)


def test_torn_damaged_and_foreign_are_told_apart(folder: Path) -> None:
    owner = slot_folder.owner(folder, 0, 2)
    file = SlotFile.open(file_of(folder, 0), owner, writable=True)
    newest, older = file.whole()
    file.write(newest.index, 0, (int.from_bytes(b"RKTORN!\n", "little")).to_bytes(8, "little"))
    file.write(older.index, 20, b"\xff\xff")
    file.close()
    file_of(folder, 1).rename(file_of(folder, 7))
    result = invoke(JOB, "--json")
    assert result.return_value == 1
    plain = json.loads(result.stdout)
    assert [(slot["rank"], slot["state"]) for slot in plain["slots"]] in (
        [(0, "damaged"), (0, "torn"), (7, "foreign")],
        [(0, "torn"), (0, "damaged"), (7, "foreign")],
    )
    assert plain["step"] == -1
    ids = [finding["id"] for finding in plain["findings"]]
    assert ids == ["RK-FLASH-005", "RK-FLASH-005", "RK-FLASH-004"]


def test_a_file_that_others_may_read_is_refused(folder: Path) -> None:
    file_of(folder, 0).chmod(0o644)
    plain = json.loads(invoke(JOB, "--json").stdout)
    assert plain["slots"][0]["state"] == "unreadable"
    assert plain["step"] == -1


def test_a_job_that_is_not_there_is_an_error_that_names_those_that_are(folder: Path) -> None:
    with pytest.raises(BadInputFile, match="job nobody of this user has nothing in memory") as told:
        CliRunner().invoke(
            cli, ["ckpt", "memory", "nobody"], standalone_mode=False, catch_exceptions=False
        )
    assert JOB in told.value.next_step


def test_torch_is_not_imported(folder: Path) -> None:
    program = (
        "import sys; from relkit.cli import cli;"
        f"cli(['ckpt', 'memory', {JOB!r}], standalone_mode=False); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "False"
