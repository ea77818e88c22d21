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
            expected errors, and nothing else.
        shape: "bytes", "json" (one document, or one a line), "text" or "zip": how inputs are
            changed without becoming rubbish at once.
        pack: makes the bytes that are read out of the changed ones (compression, a checksum).
        expected: more errors, beside those of relkit/errors.py, that the callers of the reader
            are documented to handle.
    """

    name: str
    what: str
    seeds: Callable[[Path], Sequence[bytes]]
    open: Callable[[Path], Run]
    shape: str = "bytes"
    pack: Callable[[bytes], bytes] = bytes
    expected: tuple[type[Exception], ...] = ()
