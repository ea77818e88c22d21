"""Summaries: what a look needs comes through, whatever the sizes; hostile bytes are errors."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.errors import BadDump
from relkit.hang.columns.ranks import RankColumns
from relkit.hang.detection.detector import HangDetector
from relkit.hang.detection.view_columns import columns_of
from relkit.hang.model import CpuUse, RankView, Sources
from relkit.hook.model import Communicator, HookState, Op, OpKind
from relkit.launch.hang.observe import MAX_WORLD_SIZE
from relkit.launch.hang.remote_ranks import RemoteRanks
from relkit.launch.hang.summary import (
    FLIGHTS,
    HEAD,
    MAX_RANKS_A_NODE,
    ROW,
    decode_summaries,
    encode_summary,
)
from tests.unit.hang.suspicion.loops import Loop

NODES = 9
SECOND = 10**9
NOBODY = columns_of(())


def state(rank: int, *, finished: int = 7, ages_s: Sequence[float] = ()) -> HookState:
    now_ns = 100 * SECOND
    ops = tuple(
        Op(f"op{n}", OpKind.COLLECTIVE, n, 0, 4 << n, 1, now_ns - round(age_s * SECOND))
        for n, age_s in enumerate(ages_s)
    )
    return HookState(
        rank + 5, 1, rank, rank, 4, now_ns, 0, finished + len(ops), finished, now_ns - 2 * SECOND,
        ops, communicators=(Communicator(0, rank, 4, "0", 3),),
    )  # fmt: skip


def view(rank: int, *, finished: int = 7, ages_s: Sequence[float] = (0.5,)) -> RankView:
    hook = state(rank, finished=finished, ages_s=ages_s)
    return RankView(rank, "host", rank + 5, True, "S", hook, cpu=CpuUse(0.5, 2.0, 0.25))


def remote(*summaries: bytes, nodes: int = NODES) -> RemoteRanks:
    ranks = RemoteRanks(nodes)
    ranks.take(0.0, decode_summaries(b"".join(summaries), nodes))
    return ranks


def assert_alike(one: RankColumns, other: RankColumns) -> None:
    for each in fields(RankColumns):
        if each.name != "flights":
            np.testing.assert_allclose(getattr(one, each.name), getattr(other, each.name))
    for name in ("rank", "key", "kind", "age_s"):
        ours, theirs = getattr(one.flights, name), getattr(other.flights, name)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=NODES), st.integers(0, (1 << 62) - 9))
def test_nodes_of_any_sizes_come_through_in_one_message(sizes: list[int], finished: int) -> None:
    views: list[RankView] = []
    blocks = []
    for node, size in enumerate(sizes):
        first = len(views)
        ranks = range(first, first + size)
        here = [view(r, finished=finished, ages_s=(9.0, 2.0, 0.5)[: r % 4]) for r in ranks]
        views += here
        blocks.append(encode_summary(node, 1.0, here))
    there = remote(*blocks)
    assert_alike(there.columns(NOBODY), columns_of(views))
    assert sum(map(len, blocks)) == len(sizes) * HEAD.itemsize + len(views) * ROW.itemsize
    assert there.nodes == list(range(len(sizes)))


def test_ranks_in_every_state_come_through() -> None:
    views = (
        replace(view(0), process_state="T"),
        replace(view(1), alive=False, process_state="", exit_code=-11),
        replace(view(2), alive=False, process_state="", exit_code=0),
        RankView(3, "host", 8, True, "D"),
        RankView(7, "host", 9, True, "S", sources=Sources(said={"flight recorder": "no answer"})),
        replace(view(4), hook=replace(state(4), started=1, finished=1, communicators=())),
        replace(view(5), hook=replace(state(5), started=0, finished=0)),
    )
    ranks = remote(encode_summary(4, 1.0, views))
    assert_alike(ranks.columns(NOBODY), columns_of(views))
    shown = tuple(ranks.views(4))
    assert shown == tuple(replace(each, hook=None, sources=Sources()) for each in views)


def test_of_many_operations_in_flight_the_oldest_are_told() -> None:
    ages_s = [float(age) for age in (1, 7, 3, 9, 5)]
    flights = remote(encode_summary(0, 1.0, [view(0, ages_s=ages_s)])).columns(NOBODY).flights
    assert flights.age_s.tolist() == sorted(ages_s)[: -FLIGHTS - 1 : -1]


def test_a_summary_that_says_nothing_new_is_none() -> None:
    ranks = remote(encode_summary(1, 5.0, [view(0)]))
    ranks.take(9.0, decode_summaries(encode_summary(1, 5.0, [view(0)]), NODES))
    assert ranks.received_s[1] == 0.0
    ranks.take(9.0, decode_summaries(encode_summary(1, 6.0, [view(0)]), NODES))
    assert ranks.received_s[1] == 9.0


def test_a_node_may_have_other_ranks_than_before() -> None:
    ranks = remote(*(encode_summary(node, 1.0, [view(node)]) for node in range(3)))
    ranks.take(1.0, decode_summaries(encode_summary(1, 2.0, [view(7), view(8)]), NODES))
    assert ranks.columns(NOBODY).rank.tolist() == [0, 7, 8, 2]
    ranks.take(2.0, decode_summaries(encode_summary(0, 2.0, []), NODES))
    assert ranks.columns(NOBODY).rank.tolist() == [7, 8, 2]
    assert [each.rank for each in ranks.views(1)] == [7, 8]
    assert list(ranks.views(NODES)) == []


def test_a_restarted_rank_is_another_process() -> None:
    before = columns_of([view(0)])
    for after in (replace(view(0), pid=6), replace(view(0), host="other")):
        assert before.process[0] != remote(encode_summary(0, 1.0, [after])).columns(NOBODY).process


def test_a_node_may_be_another_host_than_before() -> None:
    ranks = remote(*(encode_summary(node, 1.0, [view(node)]) for node in range(3)))
    moved = replace(view(1), host="other")
    ranks.take(1.0, decode_summaries(encode_summary(1, 2.0, [moved]), NODES))
    views = (view(0), moved, view(2))
    assert_alike(ranks.columns(NOBODY), columns_of(views))
    assert [each.host for node in range(3) for each in ranks.views(node)] == [
        "host",
        "other",
        "host",
    ]


@pytest.mark.parametrize("sizes", [(1, 3), (3, 1), (0, 2), (2, 2)])
def test_a_node_that_comes_twice_in_a_message_is_as_it_came_last(sizes: tuple[int, int]) -> None:
    summaries = [
        encode_summary(2, 1.0 + turn, [view(10 * turn + n) for n in range(size)])
        for turn, size in enumerate(sizes)
    ]
    others = [encode_summary(node, 1.0, [view(node)]) for node in (0, 4)]
    ranks = remote(others[0], *summaries, others[1])
    assert [each.rank for each in ranks.views(2)] == [10 + n for n in range(sizes[1])]
    assert ranks.columns(NOBODY).rank.tolist() == [0, *(10 + n for n in range(sizes[1])), 4]


@pytest.mark.long
@given(st.lists(st.sampled_from(["step", "stall", "wait", "end"]), max_size=12))
def test_a_look_through_summaries_sees_what_one_at_the_ranks_sees(turns: list[str]) -> None:
    """The detector's verdicts are the same, whichever way its ranks come to it."""
    near, far = HangDetector(10.0), HangDetector(10.0)
    loop = Loop(timeout_s=10.0)
    ranks = RemoteRanks(2)

    class Seen(HangDetector):
        def update(self, now_s: float, views: Sequence[RankView]) -> object:  # type: ignore[override]
            ours = near.update(now_s, views)
            notes = encode_summary(0, now_s, views[:3]) + encode_summary(1, now_s, views[3:])
            ranks.take(now_s, decode_summaries(notes, 2))
            told = {each.rank: each for each in views}
            theirs = far.look_at(now_s, ranks.columns(NOBODY), told)
            assert theirs == ours
            assert far.look.idle_s == pytest.approx(near.look.idle_s, abs=1e-4)
            assert far.look.under_way == near.look.under_way
            return super().update(now_s, views)

    loop.detector = Seen(10.0)
    for turn in turns:
        if turn == "step":
            loop.step(times=3)
        elif turn == "stall":
            loop.stall(2, 5.5)
        elif turn == "wait":
            loop.wait_in([0, 1])
            loop.pause(13.5)
            loop.step()
        else:
            loop.pause(2.5)


WHOLE = b"".join(encode_summary(node, 1.0, [view(node), view(node + 9)]) for node in range(3))


@given(st.binary(max_size=400))
def test_any_bytes_are_summaries_or_an_error(data: bytes) -> None:
    with contextlib.suppress(BadDump):
        decode_summaries(data, NODES)


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_summaries_that_were_cut_or_changed_are_taken_or_an_error(place: int, bits: int) -> None:
    changed = bytearray(WHOLE)
    changed[place] ^= bits
    for data in (WHOLE[:place], bytes(changed)):
        ranks = RemoteRanks(NODES)
        with contextlib.suppress(BadDump):
            ranks.take(0.0, decode_summaries(data, NODES))
        HangDetector(10.0).look_at(0.0, ranks.columns(NOBODY), {})
        for node in range(NODES):
            list(ranks.views(node))


def changed(name: str, value: object, where: np.dtype = ROW) -> bytes:
    """A summary of one rank in which one thing is not as it should be."""
    whole = encode_summary(0, 1.0, [view(0)])
    cut = HEAD.itemsize
    parts = {
        HEAD: np.frombuffer(whole[:cut], HEAD).copy(),
        ROW: np.frombuffer(whole[cut:], ROW).copy(),
    }
    parts[where][name] = value
    return parts[HEAD].tobytes() + parts[ROW].tobytes()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (WHOLE[:50], "ends after 50 bytes of its head"),
        (WHOLE[: HEAD.itemsize + 3], "2 ranks that ends after"),
        (WHOLE + b"R", "ends after 1 bytes"),
        (changed("version", 2, HEAD), "not a summary of version 1"),
        (changed("magic", b"XX", HEAD), "not a summary of version 1"),
        (changed("ranks", MAX_RANKS_A_NODE + 1, HEAD), "ranks on one node"),
        (changed("ranks", 2, HEAD), "2 ranks that ends after"),
        (changed("node", NODES, HEAD), "node 9 of a job of 9"),
        (changed("at_s", np.nan, HEAD), "of no time"),
        (changed("rank", MAX_WORLD_SIZE), "of rank"),
        (changed("finished", 1 << 63), "operations"),
        (changed("flags", 0xF3), "more than 3 operations in flight"),
        (changed("idle_s", np.nan), "time that cannot be"),
        (changed("used_s", np.inf), "time that cannot be"),
        (changed("waited_s", -1.0), "time that cannot be"),
    ],
)
def test_what_no_job_says_is_refused_by_name(data: bytes, words: str) -> None:
    with pytest.raises(BadDump, match=words):
        decode_summaries(data, NODES)
