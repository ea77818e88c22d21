"""What a merge keeps of many ranks, by the fewest of them that show it."""

from __future__ import annotations

from relkit.ranks import RankSet
from relkit.stacks.merge import merge_dumps
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack
from relkit.stacks.stack_index import MAX_NAMES, RanksKey, RankTally
from relkit.stacks.tree_builder import Path, build_tree
from tests.unit.stacks.text_lines import text_lines


def thread(*funcs: str, line: int = 1, lwp: int = 1, build: str = "") -> ThreadStack:
    """Functions from the outermost to the innermost."""
    frames = tuple(Frame(func, f"a.py:{line}", build, build) for func in reversed(funcs))
    return ThreadStack(lwp, "t", frames, Role.MAIN if lwp == 1 else Role.OTHER)


def test_a_rank_that_comes_again_takes_none_away() -> None:
    tally = RankTally()
    for rank in (1, 2, 3, 2, 1, 7, 0):
        tally.add_rank(rank)
    assert tally.ranks() == RankSet.of([0, 1, 2, 3, 7])


def test_ranks_come_as_bits_and_as_intervals() -> None:
    known: dict[RanksKey, RankSet] = {}
    made = []
    for bits in (0b1010, 0b0110):
        tally = RankTally()
        tally.add_rank(9)
        tally.add_bits(bits)
        tally.add_bits(0b1)
        made.append(tally.ranks(known))
        assert tally.ranks(known) is made[-1]
    assert made == [RankSet.of([0, 1, 3, 9]), RankSet.of([0, 1, 2, 9])]


def test_the_names_kept_are_the_first_of_the_alphabet_in_any_order() -> None:
    names = [f"w{i:02}" for i in range(MAX_NAMES + 4)]
    for order in (names, names[::-1]):
        tally = RankTally()
        for name in order:
            tally.add_names([name, ""])
        assert tally.names == names[:MAX_NAMES]


def test_builds_that_differ_do_not_part_equal_stacks() -> None:
    dumps = [
        RankDump(rank, 2, 1, "S", native=(thread("main", "f", build=build),))
        for rank, build in enumerate(("aa", "bb"))
    ]
    (main_thread,) = merge_dumps(dumps, 2).classes
    assert main_thread.ranks == RankSet.of([0, 1])
    assert {frame.build_id + frame.module for frame in main_thread.frames} == {""}


def test_every_thread_of_a_rank_is_counted() -> None:
    workers = [thread("run", lwp=lwp) for lwp in (2, 3, 4)]
    merged = merge_dumps([RankDump(0, 1, 1, "S", native=tuple(workers))], 1)
    (node,) = (root for root in merged.native.roots if root.func == "run")
    assert (node.threads, node.ranks) == (3, RankSet.of([0]))


def test_a_stack_that_ends_where_others_go_on_keeps_its_ranks_and_its_line() -> None:
    dumps = [
        RankDump(0, 2, 1, "S", native=(thread("main", "f"),)),
        RankDump(1, 2, 1, "S", native=(thread("main", "f", "g"),)),
    ]
    tree = merge_dumps(dumps, 2).native
    (main,) = (root for root in tree.roots if root.func == "main")
    assert main.ranks == main.children[0].ranks == RankSet.of([0, 1])
    assert [line for line in text_lines(tree) if line.startswith("main")] == [
        "main@a.py:1@0-1|;f@a.py:1@0-1| 1",
        "main@a.py:1@0-1|;f@a.py:1@0-1|;g@a.py:1@1|0 1",
    ]


def test_branches_stand_in_the_order_of_their_names() -> None:
    paths = [Path((Frame(f, "s"), Frame("main", "s")), RankSet.of([0]), 1) for f in "cab"]
    tree = build_tree("py", 1, RankSet.of([0]), (), paths)
    assert [child.func for child in tree.roots[0].children] == ["a", "b", "c"]


def test_the_largest_class_of_main_threads_comes_first() -> None:
    dumps = [
        RankDump(rank, 4, 1, "S", native=(thread("main", "a" if rank == 0 else "b", line=rank),))
        for rank in range(4)
    ]
    assert [c.ranks.fold() for c in merge_dumps(dumps, 4).classes] == ["1-3", "0"]
