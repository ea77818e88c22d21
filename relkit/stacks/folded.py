"""A merged tree as folded text: one line for every frame at which some stack ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from relkit.output import atomic_file
from relkit.ranks import RankSet
from relkit.stacks.native_lines import native_lines
from relkit.stacks.tree import StackTree

MAX_EXACT_CHARS = 4096

# ";" parts the frames and a line break parts the stacks (all that str.splitlines() splits at),
# so neither may stand in a name.
_UNSAFE = re.compile(r"[;\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if character == "\n":
        return "\\n"
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def safe_name(name: str) -> str:
    """A name without what would break a folded line: `;` is written \\x3b, a line break \\n."""
    return _UNSAFE.sub(_escape, name)


def fold_ranks(ranks: RankSet) -> str:
    """`0-3/8`; where that is longer than MAX_EXACT_CHARS, also `0-99998:2` for every second rank.

    Both forms are exact: the short one only says regular steps in fewer characters.
    """
    # At least a digit and a stroke an interval: of a large set the long form is not even tried.
    if 2 * ranks.interval_count <= MAX_EXACT_CHARS:
        text = ranks.fold("/")
        if len(text) <= MAX_EXACT_CHARS:
            return text
    return ranks.fold_strided("/")


class _Labels:
    """The text of each rank set of one tree; one that is short is made once."""

    def __init__(self, tree: StackTree) -> None:
        self._tree = tree
        self._known: dict[RankSet, bytes] = {}

    def of(self, ranks: RankSet) -> bytes:
        known = self._known.get(ranks)
        if known is None:
            sides = (ranks, self._tree.present - ranks)
            text = "|".join([fold_ranks(side) for side in sides])
            known = text.encode("ascii")
            # All long ones of 100,000 ranks together can be gigabytes.
            if len(known) <= MAX_EXACT_CHARS:
                self._known[ranks] = known
        return known


def folded_lines(tree: StackTree) -> Iterator[list[bytes]]:
    """The lines of py_stack, cpp_stack or mixed_stack, each in pieces, in a fixed order.

    Every frame carries its rank sets, and the weight is always 1, as the original viewer
    writes them. A line is mostly rank sets, which can have 100 KB each at 100,000 ranks. Frames
    share them, so a line that is joined, or kept, is a copy of them all.
    """
    labels = _Labels(tree)
    # Of the frames from the outermost to the one in hand: their ranks, and two pieces each.
    sets: list[RankSet] = []
    pieces: list[bytes] = []
    pending = [(node, 0) for node in reversed(tree.roots)]
    while pending:
        node, depth = pending.pop()
        del sets[depth:], pieces[2 * depth :]
        # A frame mostly has the ranks of the one that calls it.
        is_shared = bool(sets) and sets[-1] is node.ranks
        sets.append(node.ranks)
        # A lone surrogate in a name must not cost the file.
        name = safe_name(f"{node.func}@{node.source}").encode("utf-8", "replace")
        ranks = pieces[-1] if is_shared else labels.of(node.ranks)
        pieces += (b"%b%b@" % (b";" if depth else b"", name), ranks)
        if node.ends:
            yield [*pieces, b" 1\n"]
        pending.extend((child, depth + 1) for child in reversed(node.children))


def write_folded(path: Path, tree: StackTree) -> None:
    """Write the folded lines to a file, one at a time: the whole text can be gigabytes.

    Raises:
        UnwritablePath: the folder is missing, read-only or full; an older file is then untouched.
    """
    write = native_lines(safe_name)
    with atomic_file(path) as stream:
        if write is not None and write(stream, tree):
            return
        for pieces in folded_lines(tree):
            stream.writelines(pieces)
