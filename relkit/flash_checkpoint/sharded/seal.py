"""Writes DCP's `.metadata` for the parts that all ranks have written: `seal`, in its own process.

`python -m relkit.flash_checkpoint.sharded.seal FOLDER RANKS`.
"""

from __future__ import annotations

import json
import pickle
import sys
from dataclasses import asdict
from pathlib import Path

from relkit.checkpoint.iteration_folder import write_file
from relkit.checkpoint.manifest import FileRecord
from relkit.errors import BadInputFile, RelkitError, UnwritablePath
from relkit.files.input_file import read_input
from relkit.flash_checkpoint.sharded.part_file import contents_name, part_name
from relkit.process.bounded_child import run_child
from relkit.text.foreign_json import parse_json

METADATA = ".metadata"
_MAX_CONTENTS_BYTES = 1 << 30
_MAX_ERROR_CHARS = 2000


def seal(folder: Path, world_size: int, timeout_s: float) -> FileRecord:
    """Write the metadata into a folder in which all parts are.

    Args:
        folder: of the parts; what says what they consist of is removed.
        world_size: number of parts; timeout_s: the longest to wait, s.

    Raises:
        UnwritablePath: it cannot be written, or a part is missing; the message says why.
    """
    argv = [sys.executable, "-m", __spec__.name, str(folder), str(world_size)]
    try:
        done = run_child(argv, timeout_s, add_environment={"RELKIT_HOOK_DISABLE": "1"})
    except OSError as error:
        raise UnwritablePath(f"no process can be started: {error.strerror}") from error
    if done.timed_out:
        raise UnwritablePath(f"{folder / METADATA} was not written within {timeout_s:g} s")
    if done.returncode:
        reason = done.stderr.strip()[-_MAX_ERROR_CHARS:] or f"exit code {done.returncode}"
        raise UnwritablePath(f"{folder / METADATA} is not written: {reason}")
    plain = parse_json(done.stdout)
    return FileRecord(str(plain["name"]), int(plain["size_bytes"]), str(plain["sha256"]))


def write_metadata(folder: Path, world_size: int) -> FileRecord:
    """The same in this process.

    Raises:
        BadInputFile: what a rank has written cannot be read.
        UnwritablePath: the folder cannot be written.
    """
    # Imported here: the launcher imports this module, and has no need of DCP.
    from relkit.flash_checkpoint.sharded.metadata import merged

    names = [folder / contents_name(rank) for rank in range(world_size)]
    try:
        contents = [parse_json(read_input(path, _MAX_CONTENTS_BYTES)) for path in names]
        metadata = merged(contents, part_name)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInputFile(
            f"what the parts in {folder} consist of is not known: {error}"
        ) from error
    record = write_file(folder, METADATA, lambda out: pickle.dump(metadata, out))
    for path in names:
        path.unlink()
    return record


def main() -> int:
    """What the process does; 0 where the metadata is on disk."""
    try:
        record = write_metadata(Path(sys.argv[1]), int(sys.argv[2]))
    except RelkitError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps(asdict(record)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
