"""Steps that ranks cut from their own events alone are the same steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from relkit.straggler.collect.event_rows import MARK_KIND, Rows
from relkit.straggler.collect.step_segmenter import SegmentedSteps, StepSegmenter
from tests.unit.straggler.event_streams import (
    ALLGATHER,
    ALLREDUCE,
    BARRIER,
    BATCH,
    MS,
    RECV,
    SEND,
    Stream,
    Talk,
    batches,
    groups,
    mark,
)

DDP = [Talk(0, ALLREDUCE, 4000), Talk(0, ALLREDUCE, 9000), Talk(1, ALLREDUCE, 4)]
START = [Talk(0, ALLGATHER, 8), *[Talk(0, ALLREDUCE, 100 + n) for n in range(5)]]
SIZES = (4, 4)

talks = st.builds(
    Talk,
    group=st.integers(0, 1),
    operation=st.sampled_from([ALLREDUCE, ALLGATHER]),
    size_bytes=st.sampled_from([4, 1000, 2000]),
)


def cut_all(
    parts: Sequence[Rows], sizes: Sequence[int] = SIZES
) -> tuple[StepSegmenter, list[SegmentedSteps]]:
    segmenter = StepSegmenter()
    found = [segmenter.feed(rows, groups(sizes)) for rows in parts]
    return segmenter, [cut for cut in found if cut is not None]


def content(cuts: Sequence[SegmentedSteps]) -> dict[int, tuple[tuple[int, int], ...]]:
    """Of each step number the (communicator, seq) in it; of the newest pattern only."""
    found: dict[int, tuple[tuple[int, int], ...]] = {}
    for cut in cuts:
        step = np.searchsorted(cut.ends["end_ns"], cut.rows["end_ns"])
        for place, number in enumerate(cut.numbers.tolist()):
            begin = cut.begins["end_ns"][place]
            mine = cut.rows[(step == place) & (cut.rows["end_ns"] > begin)]
            if found and number <= max(found):
                found.clear()
            pairs = zip(mine["communicator"].tolist(), mine["seq"].tolist(), strict=True)
            found[number] = tuple(sorted(pairs))
    return found


def keys(cuts: Sequence[SegmentedSteps]) -> set[str]:
    return {cut.peers_key for cut in cuts}


def test_a_plain_loop() -> None:
    rows = Stream(1).rows(START + DDP * 50)
    _, cuts = cut_all([rows])
    found = content(cuts)
    assert len(found) >= 48
    assert all(len(pairs) == len(DDP) for pairs in found.values())
    numbers = sorted(found)
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@pytest.mark.long
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    step=st.lists(talks, min_size=1, max_size=12),
    seeds=st.tuples(*[st.integers(0, 999)] * 2),
    most=st.integers(1, 40),
    late=st.integers(0, 20),
)
def test_ranks_agree_without_a_word(
    step: list[Talk], seeds: tuple[int, int], most: int, late: int
) -> None:
    assume(len(set(step)) > 1)
    program = START + step * 60
    one = Stream(seeds[0]).rows(program)
    other = Stream(seeds[1], max_ms=1.0).rows(program)[late:]
    segmenter, first = cut_all(batches(one, seeds[1], most))
    assert segmenter.changes <= 1
    _, second = cut_all(batches(other, seeds[0], 13))
    left, right = content(first), content(second)
    assert left
    assert right
    common = sorted(left.keys() & right.keys())
    assert len(common) >= 25
    assert all(left[number] == right[number] for number in common)
    assert first[-1].peers_key == second[-1].peers_key != ""
    # Between the first and the last that both have, no step is missing on one side.
    inside = range(common[0], common[-1] + 1)
    assert {n for n in inside if n in left} == {n for n in inside if n in right}


def test_two_threads_that_serve_one_group() -> None:
    found = []
    for seed in (1, 2):
        rows = Stream(seed, threads=2).rows(START + DDP * 60)
        found.append(cut_all(batches(rows, seed, 7))[1])
    one, two = (content(cuts) for cuts in found)
    assert len(one.keys() & two.keys()) >= 50
    assert keys(found[0]) == keys(found[1])


def test_an_evaluation_is_in_no_step() -> None:
    evaluation = [Talk(0, ALLREDUCE, 16)] * 7 + [Talk(0, BARRIER, 0)]
    rows = Stream(2).rows(START + DDP * 20 + evaluation + DDP * 20)
    found = content(cut_all(batches(rows, 3, 9))[1])
    assert len(found) >= 37
    assert all(len(pairs) == len(DDP) for pairs in found.values())
    other = Stream(7).rows(START + DDP * 20 + evaluation + DDP * 20)
    assert found.keys() == content(cut_all(batches(other, 5, 21))[1]).keys()


def test_an_evaluation_by_another_group_is_left_out() -> None:
    evaluation = [Talk(2, ALLGATHER, 16)] * 3
    rows = Stream(2).rows(START + DDP * 20 + evaluation + DDP * 20)
    _, cuts = cut_all(batches(rows, 3, 9), (4, 4, 4))
    longest = max(
        int(end) - int(begin)
        for cut in cuts
        for begin, end in zip(cut.begins["end_ns"], cut.ends["end_ns"], strict=True)
    )
    assert longest < 6 * 22 * MS
    assert not any(
        (cut.rows["communicator"] == 2).any() and len(content([cut])) == 0 for cut in cuts
    )
    assert all(comm != 2 for pairs in content(cuts).values() for comm, _ in pairs)


def test_marks_are_exact() -> None:
    loop = [talk for n in range(30) for talk in [mark(n), *[Talk(0, ALLREDUCE, 64)] * 4]]
    rows = Stream(4).rows(START + loop)
    cuts = cut_all(batches(rows, 3, 6))[1]
    found = content(cuts)
    assert sorted(found) == list(range(29))
    assert all(cut.exact for cut in cuts)
    assert all(len([c for c, _ in pairs if c == 0]) == 4 for pairs in found.values())


def test_many_small_collectives_a_step_of_one_group() -> None:
    tensor = [Talk(0, ALLREDUCE, 512)] * 40
    rows = Stream(5, max_ms=1.0).rows(START + [*tensor, Talk(1, ALLREDUCE, 4096)] * 30)
    segmenter, cuts = cut_all(batches(rows, 3, 50), (2, 4))
    found = content(cuts)
    assert segmenter.changes == 0
    assert len(found) >= 28
    assert all(len(pairs) == 41 for pairs in found.values())


def test_one_collective_a_step() -> None:
    rows = Stream(5).rows(START + [Talk(0, ALLREDUCE, 4096)] * 30)
    found = content(cut_all(batches(rows, 3, 8), (4,))[1])
    assert len(found) >= 28


def test_only_sends_and_receives() -> None:
    step = [Talk(-1, RECV, 100, -1), Talk(-1, SEND, 100, 1), Talk(-1, RECV, 100, 1)]
    early = cut_all(batches(Stream(6).rows(START + step * 40), 3, 10))[1]
    found = content(early)
    assert len(found) >= 38
    rows = Stream(8).rows(START + step * 40)
    segmenter = StepSegmenter()
    late = segmenter.feed(rows[len(START) + 20 :].copy(), groups(SIZES), before=20)
    assert late is not None
    assert set(late.numbers.tolist()) == {n for n in found if n >= late.numbers[0]}


def test_a_step_with_a_hole_is_left_out() -> None:
    rows = Stream(9).rows(START + DDP * 40)
    segmenter = StepSegmenter()
    first = segmenter.feed(rows[:80].copy(), groups(SIZES))
    second = segmenter.feed(rows[90:].copy(), groups(SIZES), lost=10)
    assert first is not None
    assert second is not None
    found = content([first, second])
    assert all(len(pairs) == len(DDP) for pairs in found.values())
    assert len(found) >= 33


def test_a_new_pattern_is_learnt() -> None:
    other = [Talk(0, ALLGATHER, 4000), Talk(1, ALLREDUCE, 9000)]
    rows = Stream(3).rows(START + DDP * 30 + other * 700)
    segmenter, cuts = cut_all(batches(rows, 3, 20))
    assert 1 <= segmenter.changes <= 2
    assert cuts[0].peers_key != cuts[-1].peers_key
    assert len(cuts[-1].rows) <= 20


def test_other_work_has_another_key() -> None:
    first = [Talk(-1, SEND, 100, 1), *DDP]
    middle = [Talk(-1, RECV, 100, -1), Talk(-1, SEND, 100, 1), *DDP]
    one, two = (cut_all([Stream(3).rows(step * 40)])[1] for step in (first, middle))
    renamed = [Talk(t.group + 1, t.operation, t.size_bytes) for t in DDP]
    assert keys(one) != keys(two)
    three = cut_all([Stream(4).rows(DDP * 40)])[1]
    four = cut_all([Stream(5).rows(renamed * 40)], (1, *SIZES))[1]
    assert keys(three) == keys(four) != {""}


def test_more_data_in_a_group_of_one_rank_is_no_other_work() -> None:
    """A tensor-parallel group of one, as Megatron makes it: it reduces what one rank has read."""
    ten, twelve = ([Talk(0, ALLREDUCE, size)] * 3 + [Talk(1, ALLREDUCE, 500)] for size in (10, 12))
    for sizes, is_same in (((1, 2), True), ((2, 2), False)):
        one, two = (cut_all([Stream(3).rows(step * 40)], sizes)[1] for step in (ten, twelve))
        assert len(content(one)) >= 36
        assert (keys(one) == keys(two)) is is_same
    # As many layers are the same work, and more are not.
    more = [Talk(0, ALLREDUCE, 10), *ten]
    three, four = (cut_all([Stream(3).rows(step * 40)], (1, 2))[1] for step in (more, ten))
    assert keys(three) != keys(four)


@pytest.mark.parametrize("seed", range(3))
def test_noise_has_no_steps(seed: int) -> None:
    random = np.random.default_rng(seed)
    program = [Talk(0, ALLREDUCE, int(size)) for size in random.integers(0, 2**40, 500)]
    _, cuts = cut_all(batches(Stream(seed).rows(program), 3, 30))
    assert not cuts


def test_bursts_of_equal_collectives_are_told_by_the_pauses() -> None:
    burst = [Talk(0, ALLREDUCE, 4096)] * 8
    evaluation = [Talk(0, ALLGATHER, 16)] * 3
    program = START + burst * 30 + evaluation + burst * 30
    found = []
    for seed in (1, 2):
        stream = Stream(seed, max_ms=0.3, bursts=8)
        found.append(cut_all(batches(stream.rows(program), seed, 20), (4,)))
    one, two = (content(cuts) for _, cuts in found)
    assert all(len(pairs) == 8 for pairs in one.values())
    assert len(one.keys() & two.keys()) >= 25
    assert all(one[number] == two[number] for number in one.keys() & two.keys())
    begins = {(pairs[0][1] - len(START)) % 8 for n, pairs in one.items() if n < 30}
    assert begins == {0}


@pytest.mark.parametrize("fetches", [False, True])
def test_a_chance_pattern_inside_the_first_bursts_is_no_step(fetches: bool) -> None:
    """Every second pause of the first backward passes is longer, as on a crowded machine."""
    program = ([BATCH] * fetches + [Talk(0, ALLREDUCE, 4096)] * 8) * 30
    rows = Stream(7).rows(program)
    now_ns = 0
    for row in rows:
        if row["kind"] == MARK_KIND:
            row["start_ns"] = row["end_ns"] = now_ns + MS
            continue
        seq = int(row["seq"])
        pause_ms = 6 if seq % 8 == 0 else 4 if seq < 32 and seq % 2 == 0 else 1
        row["start_ns"] = now_ns + pause_ms * MS
        row["end_ns"] = now_ns = int(row["start_ns"]) + MS // 10
    segmenter, cuts = cut_all([rows[place : place + 1] for place in range(len(rows))], (4,))
    steps = content(cuts)
    assert segmenter.changes == 0
    assert len(steps) >= 12
    for pairs in steps.values():
        assert [seq % 8 for group, seq in pairs if group == 0] == list(range(8))
