"""What a fuzzer is: where its first inputs come from, and what is done with each input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

Run = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Target:
    """One fuzzer.

    Args:
        name: what the command line calls it; what: the reader that is tried, for the table.
        seeds: makes valid inputs, given an empty folder to work in.
        open: given an empty folder, makes the function that an input is given to. It may raise the
            errors of relkit/errors.py, and nothing else.
        shape: "bytes", "json" (one document, or one a line), "text" or "zip": how inputs are
            changed without becoming rubbish at once.
        pack: makes the bytes that are read out of the changed ones (compression, a checksum).
    """

    name: str
    what: str
    seeds: Callable[[Path], Sequence[bytes]]
    open: Callable[[Path], Run]
    shape: str = "bytes"
    pack: Callable[[bytes], bytes] = bytes


def writer(path: Path) -> Callable[[bytes], None]:
    """Make a file of mode 0600; the function replaces its content."""
    path.touch(mode=0o600)

    def write(data: bytes) -> None:
        with path.open("r+b") as stream:
            stream.write(data)
            stream.truncate()

    return write


def reads_file(name: str, read: Callable[[Path], object]) -> Callable[[Path], Run]:
    """The `open` of a target whose inputs are the content of one file.

    Args:
        name: of the file, in the target's folder; read: the reader, given its path.
    """

    def open_target(folder: Path) -> Run:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        write = writer(path)

        def run(data: bytes) -> None:
            write(data)
            read(path)

        return run

    return open_target
