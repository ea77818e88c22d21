"""Distinct stacks with their ranks -> the merged tree of one view.

Rank sets are put on the innermost frames only; one pass from the leaves to the roots makes the
others by union, so the cost does not depend on how many ranks share a path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

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
    """A frame of the tree in the making; what ends in it, but nothing of what goes on from it."""

    __slots__ = ("children", "ends", "func", "names", "sets", "source", "threads")

    def __init__(self, func: str, source: str) -> None:
        self.func = func
        self.source = source
        self.children: dict[int, _Node] = {}
        self.sets: list[RankSet] = []
        self.threads = 0
        self.ends = False
        self.names: tuple[str, ...] = ()


class _Names:
    """A number for each (func, source): as keys, numbers are faster than two texts."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        # By identity: most frames are in many stacks. The frame is kept, so its id stays its own.
        self._known: dict[int, tuple[Frame, int]] = {}
        self.texts: list[tuple[str, str]] = []

    def number(self, frame: Frame) -> int:
        known = self._known.get(id(frame))
        if known is not None:
            return known[1]
        func = _LTO.sub("", frame.func) if "lto_priv" in frame.func else frame.func
        text = func, frame.source
        number = self._numbers.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        self._known[id(frame)] = frame, number
        return number


def _outermost_first(frames: tuple[Frame, ...]) -> Iterable[Frame]:
    if len(frames) <= MAX_DEPTH:
        return reversed(frames)
    # A runaway recursion: both ends tell the story, and no reader of the tree need fear depth.
    half = MAX_DEPTH // 2
    return chain(reversed(frames[-half:]), (_LEFT_OUT,), reversed(frames[:half]))


def _insert(root: _Node, path: Path, order: list[_Node], names: _Names) -> None:
    node = root
    for frame in _outermost_first(path.frames):
        number = names.number(frame)
        child = node.children.get(number)
        if child is None:
            child = node.children[number] = _Node(*names.texts[number])
            order.append(child)
        node = child
    if node is not root:
        node.ends = True
        node.threads += path.threads
        node.sets.append(path.ranks)
        node.names = _first_names((node.names, path.names))


def _first_names(each: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The alphabetically first names of all: the same ones, however they are put together."""
    distinct = set(each)
    if len(distinct) == 1:
        return distinct.pop()
    return tuple(sorted(set(chain.from_iterable(distinct)))[:MAX_NAMES])


def _in_order(children: dict[int, _Node]) -> list[_Node]:
    if len(children) < 2:
        return list(children.values())
    return sorted(children.values(), key=attrgetter("func", "source"))


def _tree_node(node: _Node, children: list[TreeNode], unions: RankSetUnion) -> TreeNode:
    """The finished node: what ends in it, and all that goes on from it."""
    if len(children) == 1 and not node.ends:
        # Nearly every frame: it has what its only child has.
        (only,) = children
        return TreeNode(
            node.func, node.source, only.ranks, only.threads, False, (only,), only.names
        )
    return TreeNode(
        func=node.func,
        source=node.source,
        ranks=unions.of([*node.sets, *[child.ranks for child in children]]),
        threads=node.threads + sum([child.threads for child in children]),
        ends=node.ends,
        children=tuple(children),
        names=_first_names([node.names, *[child.names for child in children]]),
    )


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
    known = _Names()
    absent = RankSet.world(world_size) - present
    for state, ranks in states:
        _insert(root, Path((Frame(STATE, state),), ranks, 0), order, known)
    if absent:
        _insert(root, Path((Frame(STATE, ABSENT),), absent, 0), order, known)
    for path in paths:
        _insert(root, path, order, known)
    built: dict[int, TreeNode] = {}
    unions = unions or RankSetUnion(world_size)
    # Parents stand before their children in `order`, so reversed it is a bottom-up pass.
    for node in reversed(order):
        children = [built.pop(id(child)) for child in _in_order(node.children)]
        built[id(node)] = _tree_node(node, children, unions)
    roots = tuple(built[id(node)] for node in _in_order(root.children))
    return StackTree(view=view, world_size=world_size, present=present, roots=roots)
