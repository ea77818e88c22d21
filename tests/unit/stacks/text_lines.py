"""The folded lines of a tree as whole text."""

from __future__ import annotations

from relkit.stacks.folded import folded_lines
from relkit.stacks.tree import StackTree


def text_lines(tree: StackTree) -> list[str]:
    """Each line without its end, which it is to have."""
    lines = [b"".join(pieces).decode() for pieces in folded_lines(tree)]
    assert all(line.endswith("\n") for line in lines)
    return [line[:-1] for line in lines]
