"""A merged tree as folded text: one line for every frame at which some stack ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from relkit.output import atomic_file
from relkit.ranks import RankSet
from relkit.stacks.tree import StackTree, TreeNode

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


def _strided(ranks: RankSet) -> str:
    intervals = ranks.intervals
    parts = []
    at, count = 0, len(intervals)
    while at < count:
        low, high = intervals[at]
        stop = at
        if low == high and at + 1 < count:
            step = intervals[at + 1][0] - low
            # Single ranks that go on in equal steps; an interval of several ends the run.
            while stop + 1 < count and intervals[stop + 1] == (high + step, high + step):
                high += step
                stop += 1
        if stop - at >= 2:
            parts.append(f"{low}-{high}:{step}")
            at = stop + 1
        else:
            low, high = intervals[at]
            parts.append(f"{low}-{high}" if low != high else str(low))
            at += 1
    return "/".join(parts)


def fold_ranks(ranks: RankSet) -> str:
    """`0-3/8`; where that is longer than MAX_EXACT_CHARS, also `0-99998:2` for every second rank.

    Both forms are exact: the short one only says regular steps in fewer characters.
    """
    # At least a digit and a stroke an interval: of a large set the long form is not even tried.
    if 2 * len(ranks.intervals) <= MAX_EXACT_CHARS:
        text = ranks.fold("/")
        if len(text) <= MAX_EXACT_CHARS:
            return text
    return _strided(ranks)


class _Labels:
    """The text of each rank set of one tree, folded once: nodes on a path mostly share theirs."""

    def __init__(self, tree: StackTree) -> None:
        self._tree = tree
        # Keyed by identity: hashing a set of 50,000 intervals costs as much as folding it. The
        # tree keeps the sets alive, so no id is used twice.
        self._known: dict[int, str] = {}

    def of(self, node: TreeNode) -> str:
        key = id(node.ranks.intervals)
        if key not in self._known:
            leak = fold_ranks(self._tree.leak(node))
            self._known[key] = f"{fold_ranks(node.ranks)}|{leak}"
        return f"{safe_name(f'{node.func}@{node.source}')}@{self._known[key]}"


def folded_lines(tree: StackTree) -> Iterator[str]:
    """The lines of py_stack, cpp_stack or mixed_stack, without line ends, in a fixed order.

    Every frame carries its rank sets, and the weight is always 1, as the original viewer
    writes them. Lines come one at a time: at 100,000 ranks all of them together are large.
    """
    labels = _Labels(tree)
    stack = [(node, "") for node in reversed(tree.roots)]
    while stack:
        node, path = stack.pop()
        path += labels.of(node)
        if node.ends:
            yield f"{path} 1"
        stack.extend((child, path + ";") for child in reversed(node.children))


def write_folded(path: Path, tree: StackTree) -> None:
    """Write the folded lines to a file, one at a time: the whole text can be 100 MB and more.

    Raises:
        UnwritablePath: the folder is missing, read-only or full; an older file is then untouched.
    """
    with atomic_file(path) as stream:
        for line in folded_lines(tree):
            # A lone surrogate in a name must not cost the file.
            stream.write(line.encode("utf-8", "replace") + b"\n")
