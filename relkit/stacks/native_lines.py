"""A merged tree as folded text, written by librelkit_merge.so."""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import IO

from relkit.ranks import MAX_BITS, RankSet
from relkit.stacks.native_merge import library_path, load_library
from relkit.stacks.tree import StackTree

SafeName = Callable[[str], str]


class _Lines(ctypes.Structure):
    _fields_ = (
        ("frames", ctypes.c_void_p),
        ("frame_count", ctypes.c_uint64),
        ("names", ctypes.c_char_p),
        ("name_ends", ctypes.c_void_p),
        ("name_count", ctypes.c_uint64),
        ("sets", ctypes.c_char_p),
        ("set_ends", ctypes.c_void_p),
        ("set_is_bits", ctypes.c_char_p),
        ("set_count", ctypes.c_uint64),
        ("rank_bytes", ctypes.c_uint64),
    )


class _Parts:
    """Byte strings one behind the other, by number."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.ends = array("Q")
        self._size = 0

    def add(self, part: bytes) -> int:
        self._parts.append(part)
        self._size += len(part)
        self.ends.append(self._size)
        return len(self._parts) - 1

    def joined(self) -> bytes:
        """All of them; nothing can be added any more."""
        joined = b"".join(self._parts)
        self._parts.clear()
        return joined


class _Sets:
    """The rank sets of a tree, each object once."""

    def __init__(self, present: RankSet) -> None:
        self.parts = _Parts()
        self.is_bits = bytearray()
        # By identity, since hashing a large set is slow; they live as long as the tree.
        self._numbers: dict[int, int] = {}
        self.number(present)

    def number(self, ranks: RankSet) -> int:
        known = self._numbers.get(id(ranks))
        if known is None:
            bits = ranks.packed()
            pairs = b"" if bits else array("i", chain.from_iterable(ranks.intervals)).tobytes()
            self.is_bits.append(bool(bits))
            known = self._numbers[id(ranks)] = self.parts.add(bits or pairs)
        return known


def _frames(tree: StackTree, names: _Parts, sets: _Sets, safe_name: SafeName) -> array[int]:
    """Depth, name, set and whether a stack ends there, of every frame, parents first."""
    frames: list[int] = []
    known: dict[tuple[str, str], int] = {}
    pending = [(node, 0) for node in reversed(tree.roots)]
    while pending:
        node, depth = pending.pop()
        # Down to where the stacks part: most frames have one child.
        while True:
            key = node.func, node.source
            name = known.get(key)
            if name is None:
                # A lone surrogate in a name must not cost the file.
                text = safe_name(f"{node.func}@{node.source}").encode("utf-8", "replace")
                name = known[key] = names.add(text)
            frames += (depth, name, sets.number(node.ranks), node.ends)
            depth += 1
            if len(node.children) != 1:
                break
            (node,) = node.children
        pending += [(child, depth) for child in node.children[::-1]]
    return array("I", frames)


def native_lines(
    safe_name: SafeName, path: Path | None = None
) -> Callable[[IO[bytes], StackTree], bool] | None:
    """What writes a tree as `folded_lines` has it; None where the library is not built.

    The interpreter lock is free while it writes. It returns False, with nothing written, for a
    job that is larger than MAX_BITS ranks, and raises OSError where the file cannot be written.

    Args:
        safe_name: makes a name fit for a line.
        path: the library; None takes library_path().
    """
    library = load_library(path or library_path())
    if library is None:
        return None

    def write(stream: IO[bytes], tree: StackTree) -> bool:
        if tree.world_size > MAX_BITS:
            return False
        names, sets = _Parts(), _Sets(tree.present)
        frames = _frames(tree, names, sets, safe_name)
        lines = _Lines(
            frames=frames.buffer_info()[0],
            frame_count=len(frames) // 4,
            names=names.joined(),
            name_ends=names.ends.buffer_info()[0],
            name_count=len(names.ends),
            sets=sets.parts.joined(),
            set_ends=sets.parts.ends.buffer_info()[0],
            set_is_bits=bytes(sets.is_bits),
            set_count=len(sets.parts.ends),
            rank_bytes=(tree.world_size + 7) // 8,
        )
        stream.flush()
        error = library.rkm_write_lines(stream.fileno(), ctypes.byref(lines))
        if error:
            raise OSError(error, os.strerror(error))
        return True

    return write
