"""A merged tree, frame by frame: of the stacks that end in a frame and of those that go on."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

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


frames = st.builds(Frame, st.sampled_from("abc"), st.sampled_from("xy"))
paths = st.lists(
    st.builds(
        Path,
        st.lists(frames, max_size=5).map(tuple),
        st.sets(st.integers(0, 7), min_size=1).map(RankSet.of),
        st.integers(1, 3),
        st.lists(st.sampled_from("mnop"), max_size=2).map(tuple),
    ),
    max_size=12,
)


def described(nodes: tuple[TreeNode, ...], above: tuple[object, ...] = ()) -> dict[object, object]:
    """Everything of each frame by its path, in the order of the tree."""
    out: dict[object, object] = {}
    for node in nodes:
        here = (*above, (node.func, node.source))
        out[here] = node.ranks, node.threads, node.ends, node.names
        out |= described(node.children, here)
    return out


@given(paths)
def test_any_stacks_frame_by_frame(stacks: list[Path]) -> None:
    through: dict[tuple[object, ...], list[Path]] = defaultdict(list)
    ends = set()
    for stack in stacks:
        texts = tuple((frame.func, frame.source) for frame in reversed(stack.frames))
        ends.add(texts)
        for depth in range(1, len(texts) + 1):
            through[texts[:depth]].append(stack)
    expected = {
        here: (
            RankSet.union(stack.ranks for stack in through[here]),
            sum(stack.threads for stack in through[here]),
            here in ends,
            tuple(sorted({name for stack in through[here] for name in stack.names})),
        )
        for here in sorted(through)
    }
    tree = build_tree("py", 8, RankSet.world(8), [], stacks)
    assert list(described(tree.roots).items()) == list(expected.items())
