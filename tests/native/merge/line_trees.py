"""Random trees, and whether the library writes each as Python does."""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from random import Random

from relkit.ranks import RankSet
from relkit.stacks.folded import folded_lines, safe_name
from relkit.stacks.native_lines import native_lines
from relkit.stacks.tree import StackTree, TreeNode

NAMES = ("main", "a;b", "void f<int>(char)", "\udc80 \u00e9\n", "x" * 300, "")
WORLDS = (1, 7, 8, 9, 64, 1000, 5000)


def random_ranks(random: Random, world_size: int) -> RankSet:
    """None, one, a step, a stretch or many at random."""
    low = random.randrange(world_size)
    high = random.randrange(low, world_size)
    share = random.random()
    return random.choice(
        (
            RankSet(),
            RankSet.of([low]),
            RankSet.of(range(low, high + 1, random.randint(1, 9))),
            RankSet.from_intervals([(low, high)]),
            RankSet.of(rank for rank in range(world_size) if random.random() < share),
        )
    )


def random_tree(random: Random) -> StackTree:
    """Up to four frames deep; frames have ranks of their own, of the one above, or all."""
    world_size = random.choice(WORLDS)
    present = RankSet.world(world_size) - random_ranks(random, world_size)
    pool = [present, *(random_ranks(random, world_size) for _ in range(4))]

    def node(depth: int, above: RankSet) -> TreeNode:
        ranks = random.choice([above, *pool])
        count = random.randint(0, 3) if depth < 4 else 0
        children = tuple(node(depth + 1, ranks) for _ in range(count))
        ends = random.random() < 0.5 or not children
        return TreeNode(random.choice(NAMES), random.choice(NAMES), ranks, 1, ends, children)

    roots = tuple(node(0, present) for _ in range(random.randint(0, 3)))
    return StackTree("py", world_size, present, roots)


def python_text(tree: StackTree) -> bytes:
    """What Python writes."""
    return b"".join(b"".join(pieces) for pieces in folded_lines(tree))


def native_text(library: Path, tree: StackTree) -> bytes:
    """What the library writes behind what is there already."""
    write = native_lines(safe_name, library)
    assert write is not None
    with tempfile.TemporaryFile() as stream:
        stream.write(b"before\n")
        assert write(stream, tree)
        stream.seek(0, io.SEEK_SET)
        text = stream.read()
    assert text.startswith(b"before\n")
    return text.removeprefix(b"before\n")


def compare(library: Path, count: int) -> None:
    """Write so many random trees both ways."""
    random = Random(1)  # noqa: S311
    for _ in range(count):
        tree = random_tree(random)
        assert native_text(library, tree) == python_text(tree)


if __name__ == "__main__":
    compare(Path(sys.argv[1]), int(sys.argv[2]))
    print("equal")
