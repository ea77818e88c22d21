"""Sends in the background, which are recorded when they are waited for: one that was left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from relkit.hang.attribute import attribute
from relkit.hang.model import Category, HangVerdict, RankView
from relkit.hook.model import Communicator, Op, OpKind, TransferCount
from tests.unit.hang.hang_builders import NOW, SECOND, job, named, state, view

WORLD, STEPS, ROUNDS, BAD = 2, 5, 6, 3
WRAP = 1 << 24


def calls_of(rank: int) -> Iterator[tuple[int, str, int]]:
    """(step, send or recv, round), as they are posted; rank 0 sends first, the other second."""
    ways = ("send", "recv") if rank == 0 else ("recv", "send")
    for step in range(STEPS):
        for number in range(ROUNDS):
            for way in ways:
                yield step, way, number


def rank_in_last_step(rank: int, stuck_in: int, skips: bool, first_post: int) -> RankView:
    """It waits for its receive of this round; sends are waited for at the end of a step."""
    post = first_post
    count = {"send": 0, "recv": 0}
    done: list[Op] = []
    waiting: list[Op] = []
    in_step = 0
    for step, way, number in calls_of(rank):
        last = step == STEPS - 1
        if last and skips and (way, number) == ("send", BAD):
            continue
        post += 1
        op = Op(way, OpKind.P2P, count[way], 0, 64, 7, 0, peer=1 - rank, post=post % WRAP)
        count[way] += 1
        if last and (way, number) == ("recv", stuck_in):
            break
        if way == "send":
            waiting.append(op)
        else:
            done.append(op)
        in_step += 1
        if in_step == 2 * ROUNDS:
            done, waiting, in_step = [*done, *waiting], [], 0
    tick = NOW - 100 * SECOND
    done = [replace(o, start_ns=tick + i, end_ns=tick + i + 1) for i, o in enumerate(done)]
    hook = state(rank, WORLD, done, [replace(op, start_ns=NOW - 12 * SECOND)],
                 [Communicator(0, rank, WORLD, "0")])  # fmt: skip
    waited = sum(o.name == "send" for o in done)
    counts = (
        TransferCount(0, False, 1 - rank, 0, count["send"], waited, (64,)),
        TransferCount(0, True, 1 - rank, 0, count["recv"], count["recv"] - 1, (64,)),
    )
    return view(rank, WORLD, stack="recv", hook=replace(hook, transfers=counts))


def verdict_of(bad: int, first_post: int) -> HangVerdict:
    """Both wait in a receive: what one did not send, the other does not answer."""
    stuck_in = {bad: BAD + bad, 1 - bad: BAD}
    return attribute(
        job([rank_in_last_step(r, stuck_in[r], r == bad, first_post) for r in range(WORLD)])
    )


@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize("first_post", [0, WRAP - 7 * ROUNDS + 2])
def test_the_rank_that_left_one_out_is_named(bad: int, first_post: int) -> None:
    verdict = verdict_of(bad, first_post)
    assert named(verdict) == [(bad, Category.SKIPPED_TRANSFER)]
    assert verdict.culprits[0].sentence.startswith(f"skipped its send to rank {1 - bad} (64 B)")


def test_without_the_numbers_of_posts_nobody_is_named() -> None:
    views = []
    for rank, stuck_in in enumerate((BAD, BAD)):
        whole = rank_in_last_step(rank, stuck_in, rank == 0, 0)
        assert whole.hook is not None
        recent = tuple(replace(op, post=0) for op in whole.hook.recent)
        flying = tuple(replace(op, post=0) for op in whole.hook.in_flight)
        views.append(replace(whole, hook=replace(whole.hook, recent=recent, in_flight=flying)))
    assert attribute(job(views)).culprits == ()
