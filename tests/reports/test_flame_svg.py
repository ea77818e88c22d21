"""The flame SVG holds every rank, whatever the tree, within its size, in the same bytes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relkit.ranks import RankSet
from relkit.reports.flames import flame_svg
from relkit.reports.flames.flame_svg import policy_block, script_block, style_block
from relkit.stacks.tree import StackTree
from tests.reports.picture import Picture
from tests.reports.trees import HOSTILE, Stack, grow, hang, hostile, ranks

LIMIT_BYTES = 2_000_000


def draw(tree: StackTree) -> str:
    return flame_svg.render(tree, title="Stacks", subtitle="job 41")


def trees() -> st.SearchStrategy[StackTree]:
    name = st.text(min_size=1, max_size=6) | st.sampled_from("abc")
    frame = st.tuples(name, st.sampled_from(("/a.py:1", "/b.py:2", "/lib/libpython3.11.so", "")))
    members = st.sets(st.integers(0, 40), min_size=1, max_size=41).map(RankSet.of)
    stack = st.builds(
        Stack, st.lists(frame, min_size=1, max_size=8).map(tuple), members, st.just("")
    )
    view = st.sampled_from(("py", "cpp", "mixed"))
    return st.builds(lambda v, s: grow(v, 41, s), view, st.lists(stack, max_size=25))


@pytest.mark.parametrize("view", ["py", "cpp", "mixed"])
def test_every_frame_stands_with_its_exact_label_in_data_and_title(view: str) -> None:
    tree = hang(view)
    picture = Picture.parse(draw(tree))
    wanted = {tree.label(node) for root in tree.roots for node in root.walk()}
    drawn = [box for box in picture.boxes if not box.fold]
    assert {box.label for box in drawn} == wanted
    assert all(box.title.startswith(f"{box.label}\n") for box in picture.boxes)


@pytest.mark.parametrize("view", ["py", "cpp", "mixed"])
def test_the_picture_is_the_one_that_was_looked_at(
    view: str, gold: Callable[[str, str], None]
) -> None:
    text = draw(hang(view))
    for block in (policy_block(), style_block(), script_block()):
        text = text.replace(block, "")
    gold(f"flame_{view}.svg", text)


def test_suspects_stand_left_and_are_as_wide_as_what_they_are_compared_with() -> None:
    picture = Picture.parse(draw(hang("py", 100_000, "31337")))
    at_fork = [box for box in picture.boxes if box.label.startswith("train@")]
    assert [len(box.ranks or ()) for box in at_fork] == [1, 99_999]
    assert at_fork[0].width >= 0.9 * at_fork[1].width


@given(trees())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_rank_of_any_tree_is_lost(tree: StackTree) -> None:
    text = draw(tree)
    picture = Picture.parse(text)
    for root in tree.roots:
        assert not root.ranks - picture.ranks()
    assert len(text.encode()) <= LIMIT_BYTES


@given(st.integers(0, 99_999))
@settings(max_examples=8, deadline=None)
def test_one_odd_rank_of_100_000_is_a_box_of_its_own(odd: int) -> None:
    text = draw(hang("mixed", 100_000, str(odd)))
    picture = Picture.parse(text)
    mine = [box for box in picture.boxes if box.ranks == RankSet.of([odd])]
    assert any(box.label.startswith("next_batch@") for box in mine)
    assert min(box.width for box in mine) >= 24
    assert len(text.encode()) < 200_000


def wide(leaves: int, common: int = 100_000) -> StackTree:
    """Many leaves of few ranks under one frame, and `common` ranks in one leaf."""
    stacks = [
        Stack((("main", "a.c:1"), (f"leaf{i}", "a.c:2")), RankSet.from_intervals([(i, i + i % 7)]))
        for i in range(leaves)
    ]
    stacks.append(Stack((("main", "a.c:1"), ("wait", "a.c:3")), RankSet.world(common)))
    return grow("cpp", common, stacks)


def test_what_does_not_fit_is_a_box_that_says_so_and_holds_its_ranks() -> None:
    tree = wide(5_000)
    text = draw(tree)
    picture = Picture.parse(text)
    more = [box for box in picture.boxes if box.more]
    assert len(more) == 1
    assert re.match(r"\+4,\d+ more@", more[0].label)
    assert "leaf" in more[0].title
    assert "more; all are in the folded text file" in more[0].title
    for node in tree.roots[0].children:
        drawn = tree.label(node) in picture.labels
        assert drawn or not node.ranks - (more[0].ranks or RankSet())
    # The commonest class is there to compare with, and none of the rarest gave way to it.
    assert any(box.label.startswith("wait@") for box in picture.boxes)
    kept = [len(b.ranks or ()) for b in picture.boxes if b.label.startswith("leaf")]
    assert kept.count(1) > 400
    assert len(text.encode()) <= LIMIT_BYTES


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: wide(20_000), id="20,000 leaves"),
        pytest.param(
            lambda: grow("cpp", 4, [Stack((("f", "x.c:1"),) * 12_000, RankSet.world(4))]),
            id="12,000 frames deep",
        ),
        pytest.param(
            lambda: grow(
                "py",
                2_000,
                [Stack(((f"{i}" + "<&\"'" * 30_000, "y" * 100_000),), RankSet.of([i]))
                 for i in range(40)],
            ),
            id="names of 100 kB",
        ),
        pytest.param(
            lambda: grow(
                "py",
                100_000,
                [Stack(((f"f{k}", "a.py:1"),), RankSet.of(
                    r for r in range(100_000) if (r * 2_654_435_761 >> k) & 3 == 1))
                 for k in range(0, 24, 3)],
            ),
            id="scattered sets of 100,000",
        ),
        pytest.param(
            lambda: grow(
                "cpp",
                64,
                [Stack((("main", "m.c:1"), *((f"{'ns::' * 20}f{i}_{j}", "/p" * 60) for j in
                        range(25))), RankSet.of([i % 64])) for i in range(300)],
            ),
            id="7,500 long C++ frames",
        ),
    ],
)  # fmt: skip
def test_the_size_is_bounded_for_any_tree(make: Callable[[], StackTree]) -> None:
    tree = make()
    text = draw(tree)
    picture = Picture.parse(text)
    assert len(text.encode()) <= LIMIT_BYTES
    frames = sum(1 for root in tree.roots for _ in root.walk())
    drawn = sum(not box.more for box in picture.boxes)
    # What is not drawn stands in a box that says so, and there is none where all is.
    assert any(box.more for box in picture.boxes) == (drawn < frames)
    assert drawn


def test_long_rank_lists_are_cut_in_the_label_and_whole_in_the_table() -> None:
    even = RankSet.of(range(0, 100_000, 2))
    tree = grow("py", 100_000, [Stack((("f", "a.py:1"),), even)])
    picture = Picture.parse(draw(tree))
    assert picture.facts["sets"] == ["0-99998:2", "1-99999:2"]
    (box,) = picture.boxes
    assert box.ranks == even
    assert box.label == ("f@a.py:1@0/2/4/…/99998 (50000 ranks) #s0|1/3/5/…/99999 (50000 ranks) #s1")


def test_absent_ranks_are_named_on_a_banner() -> None:
    text = draw(hang("cpp", 16, present=ranks("0-4,8-15")))
    assert "absent: 5-7 (no dump of 3 ranks" in text
    assert 'class="rk-absent"' not in draw(hang("cpp"))


def test_a_banner_of_many_absent_ranks_says_once_how_many() -> None:
    text = draw(hang("cpp", 318, odd="3", present=RankSet.of(range(1, 318, 2))))
    assert ">absent: 0, 2, 4, …, 316 (no dump of 159 ranks; nothing here clears them)<" in text


def test_interpreter_chains_are_one_thin_box_with_the_frames_inside() -> None:
    text = draw(hang("cpp"))
    picture = Picture.parse(text)
    (fold,) = [box for box in picture.boxes if box.fold]
    assert "interpreter frames, click to unfold" in fold.title
    assert "_PyEval_EvalFrameDefault" in fold.title
    assert any(box.label.startswith("_PyEval_Vector@") for box in picture.boxes)
    inner = re.findall('<g class="[^"]*rk-inner"[^>]*>', text)
    assert len(inner) == 19
    assert all('style="display:none"' in group for group in inner)


def test_hostile_names_stay_text() -> None:
    text = draw(hostile())
    picture = Picture.parse(text)
    assert len([e for e in picture.root.iter() if e.tag.endswith("}script")]) == 1
    assert not [k for e in picture.root.iter() for k in e.attrib if k.startswith("on")]
    func, source = HOSTILE[0]
    assert any(box.label.startswith(f"{func}@{source}@") for box in picture.boxes)
    assert any("name\nwith\nnewlines" in box.label for box in picture.boxes)
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]", text)


@pytest.mark.parametrize("make", [lambda: hang("mixed"), hostile, lambda: grow("py", 4, [])])
def test_nothing_is_fetched_from_outside(make: Callable[[], StackTree]) -> None:
    picture = Picture.parse(draw(make()))
    attributes = {name for element in picture.root.iter() for name in element.attrib}
    assert not {name for name in attributes if re.search("href|src|^on", name)}
    tags = {element.tag.rpartition("}")[2] for element in picture.root.iter()}
    assert not tags & {"image", "link", "use", "foreignObject", "a", "iframe"}
    assert not re.search(r"@import|url\(", style_block())
    assert "fetch(" not in script_block()
    assert "innerHTML" not in script_block()


def test_an_empty_tree_is_a_picture_that_says_so() -> None:
    text = draw(StackTree("py", 4, RankSet(), ()))
    assert "No stacks were read." in text
    assert "absent: 0-3" in text


def test_the_same_tree_gives_the_same_bytes_in_every_process() -> None:
    code = (
        "import hashlib; from relkit.reports.flames import flame_svg;"
        "from tests.reports.trees import *;"
        "t = [hang('mixed', 64, '3,9'), hostile()];"
        "b = [flame_svg.render(x, title='t').encode() for x in t];"
        "print([hashlib.sha256(x).hexdigest() for x in b])"
    )
    seen = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).resolve().parents[2],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        seen.add(done.stdout)
    assert len(seen) == 1
