"""Writes slots of several ranks into one folder, in a process of its own, for the launcher.

`python -m relkit.flash_checkpoint.persist_slots REQUEST`. It inherits the open files, in which the
slots are locked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch

from relkit.checkpoint.iteration_folder import write_file
from relkit.checkpoint.limited_stream import LimitedStream
from relkit.checkpoint.manifest import FileRecord
from relkit.errors import RelkitError, UnwritablePath
from relkit.flash_checkpoint import memory_loader
from relkit.flash_checkpoint.on_disk.iteration_files import is_files, write_files
from relkit.flash_checkpoint.on_disk.native_objects import StandIns
from relkit.flash_checkpoint.on_disk.persisted import file_name
from relkit.flash_checkpoint.sharded.part import is_sharded
from relkit.flash_checkpoint.sharded.part_file import write_part
from relkit.flash_checkpoint.slots.errors import BadSlot
from relkit.flash_checkpoint.slots.native_copy import CopyPool
from relkit.flash_checkpoint.slots.slot_file import SlotFile, WholeSlot
from relkit.flash_checkpoint.write_slot import requested_slot, slot_request
from relkit.process.bounded_child import run_child
from relkit.text.foreign_json import parse_json

_MAX_ERROR_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Written:
    """What came of writing the slots of a node.

    Args:
        files: that are whole and durable, at least one per slot.
        problem: why some slots have none; "" where all have.
        next_step: what to do about it.
        is_damaged: a slot was damaged or given up: another step may be better.
    """

    files: tuple[FileRecord, ...] = ()
    problem: str = ""
    next_step: str = ""
    is_damaged: bool = False


def persist_slots(
    slots: Sequence[tuple[SlotFile, WholeSlot]],
    folder: Path,
    max_bytes_per_s: float,
    timeout_s: float,
) -> Written:
    """Write slots into a folder that exists, and wait until that is done.

    Args:
        slots: locked in their files.
        max_bytes_per_s: limit on writing; 0: none.
        timeout_s: the longest to wait, s.
    """
    request = {
        "slots": [slot_request(file, slot) for file, slot in slots],
        "folder": str(folder),
        "max_bytes_per_s": max_bytes_per_s,
    }
    try:
        done = run_child(
            [sys.executable, "-m", __spec__.name, json.dumps(request)],
            timeout_s,
            keep=[file.fileno() for file, _ in slots],
            add_environment={"RELKIT_HOOK_DISABLE": "1"},
        )
    except OSError as error:
        return Written(problem=f"no process can be started: {error.strerror}")
    if done.timed_out:
        return Written(
            problem=f"{folder} was not written within {timeout_s:g} s",
            next_step="Raise --flash-timeout or --flash-max-mb-per-s, or use a faster disk.",
        )
    if done.returncode:
        reason = done.stderr.strip()[-_MAX_ERROR_CHARS:] or f"exit code {done.returncode}"
        return Written(problem=reason)
    try:
        return from_plain(parse_json(done.stdout))
    except (ValueError, KeyError, TypeError) as error:
        return Written(problem=f"the answer of the process cannot be read: {error}")


def to_plain(written: Written) -> dict[str, Any]:
    """As JSON's types."""
    return asdict(written)


def from_plain(plain: dict[str, Any]) -> Written:
    """The inverse.

    Raises:
        ValueError, KeyError, TypeError: it is not such an object.
    """
    files = tuple(
        FileRecord(str(row["name"]), int(row["size_bytes"]), str(row["sha256"]))
        for row in plain["files"]
    )
    return Written(files, str(plain["problem"]), str(plain["next_step"]), bool(plain["is_damaged"]))


def main() -> int:
    """What the process does: it prints what has been written."""
    request = json.loads(sys.argv[1])
    folder, limit = Path(request["folder"]), float(request["max_bytes_per_s"])
    files: list[FileRecord] = []
    # One for all slots: what it has put in the place of a module is not that module.
    stand_ins = StandIns()
    problem, next_step, is_damaged = "", "", False
    try:
        if not folder.is_dir():
            raise UnwritablePath(
                f"{folder} is not on this node",
                next_step="Save to a folder that all nodes share.",
            )
        for slot in map(requested_slot, request["slots"]):
            files += _write(*slot, folder, stand_ins, limit)
    except RelkitError as error:
        problem, next_step = str(error), error.next_step
        is_damaged = isinstance(error, BadSlot)
    print(json.dumps(to_plain(Written(tuple(files), problem, next_step, is_damaged))))
    return 0


def _write(
    file: SlotFile, slot: WholeSlot, folder: Path, stand_ins: StandIns, max_bytes_per_s: float
) -> list[FileRecord]:
    state, rank = memory_loader.mapped(file, slot), file.owner.rank

    def save(out: BinaryIO) -> None:
        torch.save(state, cast(BinaryIO, LimitedStream(out, max_bytes_per_s)))

    if is_sharded(state):
        records = [write_part(state, folder, rank, max_bytes_per_s)]
    elif is_files(state):
        records = write_files(state, folder, rank, stand_ins, max_bytes_per_s)
    else:
        records = [write_file(folder, file_name(rank), save)]
    try:
        # Verified after it was written, so that no change meanwhile goes unnoticed.
        memory_loader.verify(file, slot, CopyPool(1))
    except BadSlot as error:
        raise BadSlot(error.fault, f"rank {rank}: {error}") from error
    return records


if __name__ == "__main__":
    sys.exit(main())
