"""Distinct stacks with their ranks -> the merged tree of one view.

The stacks are sorted, so that those which share their outer frames follow each other and every
frame is made once, after all that goes on from it. Its ranks are the union of theirs: the cost does
not depend on how many ranks share a path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import TypeAlias

from relkit.ranks import RankSet
from relkit.stacks.model import Frame
from relkit.stacks.rank_set_union import RankSetUnion
from relkit.stacks.stack_index import MAX_NAMES
from relkit.stacks.tree import StackTree, TreeNode

Text: TypeAlias = tuple[str, str]
"""(func, source) of a frame."""

Numbers: TypeAlias = tuple[int, ...]

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


@dataclass(slots=True)
class _End:
    """What ends in a frame, of all paths with the same frames.

    Args:
        sets: the ranks of each; threads: how many there are; names: of their threads.
    """

    sets: list[RankSet]
    threads: int
    names: tuple[str, ...]

    def add(self, path: Path) -> None:
        self.sets.append(path.ranks)
        self.threads += path.threads
        self.names = _first_names((self.names, path.names))


def _outermost_first(frames: tuple[Frame, ...]) -> Iterable[Frame]:
    if len(frames) <= MAX_DEPTH:
        return reversed(frames)
    # A runaway recursion: both ends tell the story, and no reader of the tree need fear depth.
    half = MAX_DEPTH // 2
    return chain(reversed(frames[-half:]), (_LEFT_OUT,), reversed(frames[:half]))


def _text(frame: Frame) -> Text:
    func = _LTO.sub("", frame.func) if "lto_priv" in frame.func else frame.func
    return func, frame.source


def _in_order(paths: list[Path]) -> tuple[list[Text], list[tuple[Numbers, Path]]]:
    """(the texts of all frames, each path as numbers of these, outermost first), both sorted."""
    # By identity: most frames are in many stacks. The paths keep them, so an id stays its own.
    frames = {id(frame): frame for path in paths for frame in path.frames}
    frames[id(_LEFT_OUT)] = _LEFT_OUT
    each = {key: _text(frame) for key, frame in frames.items()}
    texts = sorted(set(each.values()))
    places = {text: place for place, text in enumerate(texts)}
    numbers = {key: places[text] for key, text in each.items()}
    numbered = [
        (tuple([numbers[id(frame)] for frame in _outermost_first(path.frames)]), path)
        for path in paths
    ]
    numbered.sort(key=itemgetter(0))
    return texts, numbered


def _shared(before: Numbers, after: Numbers) -> int:
    """How many frames two paths share, from the outermost on."""
    count = 0
    for old, new in zip(before, after, strict=False):
        if old != new:
            break
        count += 1
    return count


def _first_names(each: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The alphabetically first names of all: the same ones, however they are put together."""
    distinct = set(each)
    if len(distinct) == 1:
        return distinct.pop()
    return tuple(sorted(set(chain.from_iterable(distinct)))[:MAX_NAMES])


def _tree_node(
    text: Text, end: _End | None, children: list[TreeNode], unions: RankSetUnion
) -> TreeNode:
    """The finished node: what ends in it, and all that goes on from it."""
    func, source = text
    if end is None and len(children) == 1:
        # Nearly every frame: it has what its only child has.
        (only,) = children
        return TreeNode(func, source, only.ranks, only.threads, False, (only,), only.names)
    own = end or _End([], 0, ())
    return TreeNode(
        func=func,
        source=source,
        ranks=unions.of([*own.sets, *[child.ranks for child in children]]),
        threads=own.threads + sum([child.threads for child in children]),
        ends=end is not None,
        children=tuple(children),
        names=_first_names([own.names, *[child.names for child in children]]),
    )


def _roots(
    texts: list[Text], numbered: list[tuple[Numbers, Path]], unions: RankSetUnion
) -> tuple[TreeNode, ...]:
    """The tree of sorted paths: each goes on where it parts from the one before it."""
    open_path: Numbers = ()
    # Of each depth of the open path: its finished children, and what ends there. Depth 0: the root.
    children: list[list[TreeNode]] = [[]]
    ends: list[_End | None] = [None]

    def close(depth: int) -> None:
        for number in reversed(open_path[depth:]):
            node = _tree_node(texts[number], ends.pop(), children.pop(), unions)
            children[-1].append(node)

    for numbers, path in numbered:
        shared = _shared(open_path, numbers)
        close(shared)
        open_path = numbers
        children += [[] for _ in numbers[shared:]]
        ends += [None] * (len(numbers) - shared)
        if numbers:
            end = ends[-1] = ends[-1] or _End([], 0, ())
            end.add(path)
    close(0)
    return tuple(children[0])


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
    every = [Path((Frame(STATE, state),), ranks, 0) for state, ranks in states]
    absent = RankSet.world(world_size) - present
    if absent:
        every.append(Path((Frame(STATE, ABSENT),), absent, 0))
    every += paths
    roots = _roots(*_in_order(every), unions or RankSetUnion(world_size))
    return StackTree(view=view, world_size=world_size, present=present, roots=roots)
