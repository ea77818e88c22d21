"""The merge against the original viewer, in every order, and where the viewer is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.ranks import RankSet
from relkit.stacks.dumpfile import read_dump
from relkit.stacks.merge import merge_dumps, merge_folder
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack
from relkit.stacks.tree_builder import MAX_DEPTH
from tests.unit.stacks.dump_strategies import dumps, plain
from tests.unit.stacks.text_lines import text_lines
from tests.unit.stacks.viewer_rules import viewer_lines

GOLD = Path(__file__).parents[2] / "data/xpu_timer/eight_ranks"
WORLD = 4


def stack(*funcs: str, lwp: int = 1, name: str = "t", role: Role = Role.OTHER) -> ThreadStack:
    """A thread whose functions are given outermost first."""
    return ThreadStack(lwp, name, tuple(Frame(f, "s") for f in reversed(funcs)), role)


def rank(number: int, *native: ThreadStack, state: str = "S") -> RankDump:
    return RankDump(number, WORLD, 1, state, native)


def world() -> st.SearchStrategy[list[RankDump]]:
    one_each = [dumps(plain, rich=False, world_size=WORLD) for _ in range(WORLD)]
    return st.tuples(*one_each).map(
        lambda captured: [replace(dump, rank=index) for index, dump in enumerate(captured)]
    )


@pytest.mark.parametrize("name", ["py_stack", "cpp_stack"])
def test_the_lines_of_the_original_viewer(name: str) -> None:
    merged = merge_folder(GOLD)
    tree = merged.python if name == "py_stack" else merged.native
    assert sorted(text_lines(tree)) == sorted((GOLD / name).read_text().splitlines())


def test_threads_of_the_original_tool_are_told_apart() -> None:
    roots = {r.source: r for r in merge_folder(GOLD).mixed.roots if r.func == "Role"}
    assert set(roots) == {"autograd", "communication", "main", "other", "watchdog"}
    assert roots["autograd"].names == ("pt_autograd_0", "pt_autograd_1")
    assert roots["communication"].names == ("nccl_proxy_svc",)


def test_the_dumps_in_memory_merge_as_the_folder_does() -> None:
    in_memory = [read_dump(path) for path in GOLD.glob("*.stacktrace")]
    assert merge_dumps(reversed(in_memory), 8) == merge_folder(GOLD)


@given(world())
def test_random_worlds_print_what_the_viewer_prints(captured: list[RankDump]) -> None:
    merged = merge_dumps(captured, WORLD)
    assert sorted(text_lines(merged.python)) == viewer_lines(captured, python=True)
    assert sorted(text_lines(merged.native)) == viewer_lines(captured, python=False)


@pytest.mark.long
@given(world(), st.randoms(use_true_random=False))
def test_any_order_of_ranks_and_threads_gives_the_same(
    captured: list[RankDump], random: Random
) -> None:
    other = []
    for dump in captured:
        # Threads that share an id pair up by their order, so only distinct ids may change places.
        native = list({thread.os_thread_id: thread for thread in dump.native}.values())
        python = list({thread.os_thread_id: thread for thread in dump.python}.values())
        plain_dump = replace(dump, native=tuple(native), python=tuple(python))
        random.shuffle(native)
        random.shuffle(python)
        other.append((plain_dump, replace(dump, native=tuple(native), python=tuple(python))))
    random.shuffle(other)
    first = merge_dumps((dump for dump, _ in other), WORLD)
    random.shuffle(other)
    assert first == merge_dumps((dump for _, dump in other), WORLD)


@pytest.mark.long
@given(world())
def test_every_node_is_the_union_of_what_lies_below(captured: list[RankDump]) -> None:
    merged = merge_dumps(captured, WORLD)
    for tree in (merged.python, merged.native, merged.mixed):
        for root in tree.roots:
            for node in root.walk():
                below = RankSet.of(rank for child in node.children for rank in child.ranks)
                assert not below - node.ranks
                assert node.ends or below == node.ranks
                assert node.threads >= sum(child.threads for child in node.children)


def test_absent_ranks_are_shown_and_are_not_innocent() -> None:
    merged = merge_dumps([rank(0, stack("a")), rank(2, stack("b")), rank(3, stack("a"))], WORLD)
    assert merged.present == RankSet.of([0, 2, 3])
    assert text_lines(merged.native) == [
        "State@S@0/2-3| 1",
        "State@absent@1|0/2-3 1",
        "a@s@0/3|2 1",
        "b@s@2|0/3 1",
    ]


def test_link_time_optimisation_cuts_no_stack() -> None:
    with_suffix = rank(0, stack("main", "_PyEval_EvalFrameDefault.lto_priv.0", "ncclWait"))
    without = rank(1, stack("main", "_PyEval_EvalFrameDefault", "ncclWait"))
    merged = merge_dumps([with_suffix, without], 2)
    assert text_lines(merged.native)[1:] == [
        "main@s@0-1|;_PyEval_EvalFrameDefault@s@0-1|;ncclWait@s@0-1| 1"
    ]


def test_threads_are_counted_and_keep_their_names() -> None:
    workers = [stack("run", lwp=i, name=f"w{i:02}") for i in range(1, 11)]
    merged = merge_dumps([rank(0, *workers), rank(1, *workers)], 2)
    (node,) = (root for root in merged.native.roots if root.func == "run")
    assert node.threads == 20
    assert node.names == tuple(f"w{i:02}" for i in range(1, 9))


def test_a_runaway_recursion_keeps_both_ends() -> None:
    deep = ["main", *(f"f{i}" for i in range(5000)), "leaf"]
    merged = merge_dumps([rank(0, stack(*deep))], 1)
    (line,) = (line for line in text_lines(merged.native) if line.startswith("main"))
    assert line.count(";") == MAX_DEPTH
    assert "[frames left out]" in line
    assert "leaf@s@0| 1" in line


def test_main_threads_are_classed_by_their_functions() -> None:
    def main(number: int, line: int, *funcs: str) -> RankDump:
        frames = tuple(Frame(f, f"a.py:{line}") for f in reversed(funcs))
        return rank(number, ThreadStack(1, "m", frames, Role.MAIN), stack("other", lwp=2))

    merged = merge_dumps(
        [
            main(0, 1, "f", "wait"),
            main(1, 2, "f", "wait"),
            main(2, 1, "f"),
            main(3, 1, "f", "wait"),
        ],
        WORLD,
    )
    assert [c.ranks.fold() for c in merged.classes] == ["0-1,3", "2"]
    assert merged.classes[0].frames[0] == Frame("wait", "a.py:1")


def test_where_evaluations_begin_tells_stacks_apart_in_the_mixed_view_only() -> None:
    native = ThreadStack(
        1, "n", tuple(Frame(f, "x.so") for f in ("_PyEval_EvalFrame", "c", "_PyEval_EvalFrame"))
    )

    def dump(number: int, *entries: bool) -> RankDump:
        frames = tuple(Frame(f, "a.py:1", entry=e) for f, e in zip("fed", entries, strict=True))
        return replace(rank(number, native), python=(ThreadStack(1, "p", frames),))

    captured = [dump(0, False, True, True), dump(1, True, False, True)]
    merged = merge_dumps(captured, 2)
    assert merged == merge_dumps(reversed(captured), 2)
    assert text_lines(merged.python)[1:] == ["d@a.py:1@0-1|;e@a.py:1@0-1|;f@a.py:1@0-1| 1"]
    assert [line.split(";", 1)[1] for line in text_lines(merged.mixed)[:-1]] == [
        "d@a.py:1@0-1|;c@x.so@0|1;e@a.py:1@0|1;f@a.py:1@0|1 1",
        "d@a.py:1@0-1|;e@a.py:1@1|0;c@x.so@1|0;f@a.py:1@1|0 1",
    ]


def test_notes_name_their_ranks() -> None:
    captured = [replace(rank(i), notes=("no ptrace right",)) for i in (0, 1, 3)]
    assert merge_dumps(captured, WORLD).notes == ("ranks 0-1,3: no ptrace right",)


def test_a_rank_outside_the_world_is_refused() -> None:
    merged = merge_dumps([rank(0), rank(9)], WORLD)
    assert merged.refused == (("rank 9", "outside the world of 4 ranks"),)
    assert merged.present == RankSet.of([0])


@pytest.mark.long
def test_regular_steps_stay_short_at_a_hundred_thousand_ranks() -> None:
    size = 100_000
    captured = (
        replace(rank(i, stack("even" if i % 2 == 0 else "odd")), world_size=size)
        for i in range(size)
    )
    text = text_lines(merge_dumps(captured, size).native)
    assert text == [
        "State@S@0-99999| 1",
        "even@s@0-99998:2|1-99999:2 1",
        "odd@s@1-99999:2|0-99998:2 1",
    ]
