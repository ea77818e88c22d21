"""Threads and names of a frame: of the stacks that end in it and of those that go on."""

from __future__ import annotations

from relkit.ranks import RankSet
from relkit.stacks.model import Frame
from relkit.stacks.stack_index import MAX_NAMES
from relkit.stacks.tree import TreeNode
from relkit.stacks.tree_builder import Path, build_tree

OUTER, INNER, OTHER = Frame("outer", "x"), Frame("inner", "x"), Frame("other", "x")


def root(*paths: Path) -> TreeNode:
    tree = build_tree("py", 8, RankSet.world(8), [], paths)
    (found,) = tree.roots
    return found


def path(frames: tuple[Frame, ...], rank: int, threads: int, *names: str) -> Path:
    return Path(frames, RankSet.of([rank]), threads, names)


def test_threads_and_names_are_those_of_all_stacks_through_a_frame() -> None:
    outer = root(
        path((OUTER,), 0, 2, "ends"),
        path((INNER, OUTER), 1, 3, "deep", "ends"),
        path((OTHER, OUTER), 2, 4, "beside"),
        path((OTHER, OUTER), 3, 5),
    )
    assert (outer.threads, outer.names, outer.ends) == (14, ("beside", "deep", "ends"), True)
    assert outer.ranks == RankSet.of([0, 1, 2, 3])
    assert [(child.func, child.threads, child.names) for child in outer.children] == [
        ("inner", 3, ("deep", "ends")),
        ("other", 9, ("beside",)),
    ]


def test_a_frame_that_only_passes_on_has_what_goes_on() -> None:
    outer = root(path((INNER, OUTER), 1, 3, "deep"))
    assert (outer.threads, outer.names, outer.ends) == (3, ("deep",), False)
    assert outer.ranks == RankSet.of([1])


def test_the_first_names_of_many_are_kept() -> None:
    names = [f"thread-{number:02}" for number in range(3 * MAX_NAMES)]
    stacks = [path((INNER, OUTER), 1, 1, name) for name in reversed(names[::2])]
    stacks += [path((OTHER, OUTER), 1, 1, name) for name in names[1::2]]
    outer = root(*stacks)
    assert outer.names == tuple(names[:MAX_NAMES])
    assert outer.children[0].names == tuple(names[: 2 * MAX_NAMES : 2])
