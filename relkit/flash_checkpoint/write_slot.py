"""Writes a slot to disk, in a process of its own: `python -m relkit.flash_checkpoint.write_slot`.

It inherits the open file, in which the slot is locked: it goes on if the training process dies.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from relkit.errors import RelkitError, UnwritablePath
from relkit.flash_checkpoint import memory_loader
from relkit.flash_checkpoint.on_disk import disk
from relkit.flash_checkpoint.save_handle import WAIT_S
from relkit.flash_checkpoint.slots.native_copy import CopyPool
from relkit.flash_checkpoint.slots.slot_file import SlotFile, WholeSlot
from relkit.flash_checkpoint.slots.slot_format import Owner, SlotHeader
from relkit.process.bounded_child import run_child

_MAX_ERROR_CHARS = 2000


def write_slot(
    file: SlotFile, slot: WholeSlot, path: Path, root: Path, timeout_s: float = WAIT_S
) -> None:
    """Write a slot to disk, and wait until it is there.

    Args:
        file: in which the slot is locked.
        path, root: as of disk.write; timeout_s: the longest to wait, s.

    Raises:
        UnwritablePath: it could not be written; the message says why.
    """
    request = {
        "slot": slot_request(file, slot),
        "path": str(path),
        "root": str(root),
    }
    step = slot.header.step
    try:
        done = run_child(
            [sys.executable, "-m", __spec__.name, json.dumps(request)],
            timeout_s,
            keep=(file.fileno(),),
            add_environment={"RELKIT_HOOK_DISABLE": "1"},
        )
    except OSError as error:
        raise UnwritablePath(
            f"step {step} is not on disk: no process can be started: {error}"
        ) from error
    if done.timed_out:
        raise UnwritablePath(
            f"step {step} is not on disk: it was not written within {timeout_s:g} s",
            next_step="Save to a faster disk; the previous checkpoint is intact.",
        )
    if done.returncode:
        reason = done.stderr.strip()[-_MAX_ERROR_CHARS:] or f"exit code {done.returncode}"
        raise UnwritablePath(
            f"step {step} is not on disk: {reason}",
            next_step="The previous checkpoint is intact.",
        )


def slot_request(file: SlotFile, slot: WholeSlot) -> dict[str, Any]:
    """A slot as JSON's types, for a process that inherits the descriptor of its file."""
    return {
        "file": str(file.path),
        "descriptor": file.fileno(),
        "owner": {**asdict(file.owner), "job": file.owner.job.hex()},
        "index": slot.index,
        "header": asdict(slot.header),
    }


def requested_slot(request: dict[str, Any]) -> tuple[SlotFile, WholeSlot]:
    """The inverse of `slot_request`, in the other process.

    Raises:
        BadSlot: it is not a file of slots.
    """
    owner = request["owner"]
    file = SlotFile.of_descriptor(
        Path(request["file"]),
        request["descriptor"],
        Owner(owner["rank"], owner["world_size"], bytes.fromhex(owner["job"])),
        writable=True,
    )
    return file, WholeSlot(request["index"], SlotHeader(**request["header"]))


def main() -> int:
    """What the process does; 0 where the slot is on disk."""
    request = json.loads(sys.argv[1])
    try:
        file, slot = requested_slot(request["slot"])
        pool = CopyPool(1)
        # Verified after it was written: nothing that has changed meanwhile is ever visible.
        disk.write(
            memory_loader.mapped(file, slot),
            Path(request["path"]),
            slot.header.step,
            Path(request["root"]),
            lambda: memory_loader.verify(file, slot, pool),
            slot.header.saved_unix_ns,
        )
    except RelkitError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
