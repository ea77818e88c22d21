"""Distinct stacks with their ranks -> the merged tree of one view.

Rank sets are put on the innermost frames only; one pass from the leaves to the roots makes the
others by union, so the cost does not depend on how many ranks share a path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from relkit.ranks import RankSet
from relkit.stacks.model import Frame
from relkit.stacks.rank_set_union import RankSetUnion
from relkit.stacks.stack_index import MAX_NAMES
from relkit.stacks.tree import StackTree, TreeNode

MAX_DEPTH = 2000
STATE = "State"
ABSENT = "absent"
_LEFT_OUT = Frame("[frames left out]", "")
# GCC's mark of a local function made global by link-time optimisation; its number differs
# between builds of the same interpreter.
_LTO = re.compile(r"\.lto_priv(\.\d+)*")


@dataclass(frozen=True, slots=True)
class Path:
    """One distinct stack of a view.

    Args:
        frames: innermost first.
        ranks: ranks with a thread in this stack; threads: number of such threads.
        names: their thread names.
    """

    frames: tuple[Frame, ...]
    ranks: RankSet
    threads: int
    names: tuple[str, ...] = ()


class _Node:
    __slots__ = ("children", "ends", "func", "names", "sets", "source", "threads")

    def __init__(self, func: str, source: str) -> None:
        self.func = func
        self.source = source
        self.children: dict[tuple[str, str], _Node] = {}
        self.sets: list[RankSet] = []
        self.threads = 0
        self.ends = False
        self.names: set[str] = set()


def _outermost_first(frames: tuple[Frame, ...]) -> Iterable[Frame]:
    if len(frames) <= MAX_DEPTH:
        return reversed(frames)
    # A runaway recursion: both ends tell the story, and no reader of the tree need fear depth.
    half = MAX_DEPTH // 2
    return chain(reversed(frames[-half:]), (_LEFT_OUT,), reversed(frames[:half]))


def _insert(root: _Node, path: Path, order: list[_Node]) -> None:
    node = root
    for frame in _outermost_first(path.frames):
        func = _LTO.sub("", frame.func) if "lto_priv" in frame.func else frame.func
        child = node.children.get((func, frame.source))
        if child is None:
            child = node.children[func, frame.source] = _Node(func, frame.source)
            order.append(child)
        node = child
        node.threads += path.threads
        if not node.names.issuperset(path.names):
            node.names = set(sorted(node.names.union(path.names))[:MAX_NAMES])
    if node is not root:
        node.ends = True
        node.sets.append(path.ranks)


def build_tree(
    view: str,
    world_size: int,
    present: RankSet,
    states: Iterable[tuple[str, RankSet]],
    paths: Iterable[Path],
    unions: RankSetUnion | None = None,
) -> StackTree:
    """Merge the distinct stacks of one view.

    Args:
        view: "py", "cpp" or "mixed".
        world_size: ranks in the job.
        present: ranks that were read; the others get the root `State@absent`.
        states: each process state with its ranks, shown as the root `State@<state>`.
        paths: the distinct stacks, in any order; ones with equal frames add up.
        unions: shared by the trees of one merge, which mostly have the same rank sets.
    """
    root = _Node("", "")
    order: list[_Node] = []
    absent = RankSet.world(world_size) - present
    for state, ranks in states:
        _insert(root, Path((Frame(STATE, state),), ranks, 0), order)
    if absent:
        _insert(root, Path((Frame(STATE, ABSENT),), absent, 0), order)
    for path in paths:
        _insert(root, path, order)
    built: dict[int, TreeNode] = {}
    unions = unions or RankSetUnion(world_size)
    # Parents stand before their children in `order`, so reversed it is a bottom-up pass.
    for node in reversed(order):
        children = tuple(built.pop(id(node.children[key])) for key in sorted(node.children))
        built[id(node)] = TreeNode(
            func=node.func,
            source=node.source,
            ranks=unions.of([*node.sets, *(child.ranks for child in children)]),
            threads=node.threads,
            ends=node.ends,
            children=children,
            names=tuple(sorted(node.names)),
        )
    roots = tuple(built[id(root.children[key])] for key in sorted(root.children))
    return StackTree(view=view, world_size=world_size, present=present, roots=roots)
