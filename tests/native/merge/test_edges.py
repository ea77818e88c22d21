"""The merge's parser at the edges of what it takes, beside the Python reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from relkit.errors import BadDump
from relkit.stacks import native_merge
from relkit.stacks.dumpfile import decode
from tests.native.merge.test_native import library

__all__ = ("library",)
pytestmark = pytest.mark.native


def both(library: Path, data: bytes, name: str) -> tuple[bool, bool]:
    """Whether the C and the Python reader take a file."""
    loaded = native_merge.load_library(library)
    assert loaded is not None
    with native_merge.NativeContext(loaded) as context:
        native = context.add(data, name).status == 0
    try:
        decode(data, name=name)
    except BadDump:
        return native, False
    return native, True


# A dump of the original tool without threads: its pid, and neither rank nor world size.
PLAIN = b"\x18\x07"


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("00001-00004.stacktrace", True),
        ("00003-00004.stacktrace", True),
        ("00004-00004.stacktrace", False),
        ("0001-00004.stacktrace", False),
        ("00001-0004.stacktrace", False),
        ("0000000001-0000000004.stacktrace", True),
        ("00000000001-00004.stacktrace", False),
        ("00001-00004.stacktrace2", False),
    ],
)
def test_who_a_file_is_by_its_name(library: Path, name: str, taken: bool) -> None:
    assert both(library, PLAIN, name) == (taken, taken)


@pytest.mark.parametrize(
    ("more", "taken"),
    [
        (b"\x18" + b"\xff" * 9 + b"\x01", True),
        (b"\x18" + b"\xff" * 9 + b"\x02", False),
        (b"\x18" + b"\xff" * 10 + b"\x01", False),
        (b"\x00\x01", False),
        (b"\x5a\x01S", True),
        (b"\x5a\x02S", False),
    ],
    ids=["64-bits", "65-bits", "11-bytes", "field-0", "state", "cut-short"],
)
def test_what_is_no_message(library: Path, more: bytes, taken: bool) -> None:
    assert both(library, PLAIN + more, "00001-00004.stacktrace") == (taken, taken)
