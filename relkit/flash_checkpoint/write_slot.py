"""Writes a slot to disk, in a process of its own: `python -m relkit.flash_checkpoint.write_slot`.

The training process passes the open file, so that the slot is there even if its name is taken over,
or if that process dies.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from relkit.errors import RelkitError, UnwritablePath
from relkit.flash_checkpoint import disk, memory_loader
from relkit.flash_checkpoint.native_copy import CopyPool
from relkit.flash_checkpoint.slot_file import SlotFile, WholeSlot
from relkit.flash_checkpoint.slot_format import Owner, SlotHeader

_MAX_SAID = 2000


def write_slot(file: SlotFile, slot: WholeSlot, path: Path, root: Path) -> None:
    """Write a slot to disk and wait for that; the slot must stay as it is meanwhile.

    Args:
        path, root: as of disk.write.

    Raises:
        UnwritablePath: it could not be written; the reason is in it.
    """
    request = {
        "owner": {**asdict(file.owner), "job": file.owner.job.hex()},
        "index": slot.index,
        "header": asdict(slot.header),
        "slots": str(file.path),
        "path": str(path),
        "root": str(root),
    }
    with file.descriptor() as descriptor:
        done = subprocess.run(
            [sys.executable, "-m", __spec__.name, str(descriptor), json.dumps(request)],
            pass_fds=(descriptor,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "RELKIT_HOOK_DISABLE": "1"},
            check=False,
        )
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()[-_MAX_SAID:]
        raise UnwritablePath(
            f"step {slot.header.step} is not on disk: {said or f'exit code {done.returncode}'}",
            next_step="The checkpoint before it is as it was.",
        )


def main() -> int:
    """What the process does; 0 where the slot is on disk."""
    descriptor, request = int(sys.argv[1]), json.loads(sys.argv[2])
    owner = request["owner"]
    try:
        file = SlotFile.of_descriptor(
            Path(request["slots"]),
            descriptor,
            Owner(owner["rank"], owner["world_size"], bytes.fromhex(owner["job"])),
            writable=True,
        )
        slot = WholeSlot(request["index"], SlotHeader(**request["header"]))
        pool = CopyPool(1)
        memory_loader.verify(file, slot, pool)
        state = memory_loader.mapped(file, slot)
        disk.write(state, Path(request["path"]), slot.header.step, Path(request["root"]))
    except RelkitError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
