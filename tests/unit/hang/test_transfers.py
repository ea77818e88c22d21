"""Sends and receives that hang: the rank that left one out, swapped two or sent another size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from relkit.hang.attribute import attribute
from relkit.hang.model import Category, HangVerdict, RankView
from relkit.hook.model import Communicator, Op, OpKind, TransferCount
from tests.unit.hang.hang_builders import NOW, SECOND, job, named, state, view

RANKS, STEPS, BAD = 4, 6, 1
KIB = 1024

# ("send" | "recv", peer, bytes) or ("allreduce", -1, bytes) or ("host", -1, 0)
Call = tuple[str, int, int]


@dataclass
class Run:
    """What the calls of one rank come to."""

    calls: Sequence[Call]
    done: list[Op]
    flying: Op | None = None


def stage(rank: int) -> list[Call]:
    """One step of a pipeline: activations down, gradients up, a collective."""
    down: list[Call] = [("recv", rank - 1, KIB)] if rank else []
    up: list[Call] = [("send", rank - 1, KIB)] if rank else []
    if rank < RANKS - 1:
        down.append(("send", rank + 1, KIB))
        up.insert(0, ("recv", rank + 1, KIB))
    return [*down, *up, ("allreduce", -1, 4)]


def run(programs: Mapping[int, Sequence[Call]]) -> list[RankView]:
    """Run until nobody can go on; a send ends when the peer receives, whatever the sizes."""
    runs = {rank: Run(calls, []) for rank, calls in programs.items()}
    counts: dict[tuple[int, str, int], list[int]] = {}
    ended: dict[tuple[int, str, int], int] = {}
    collectives = dict.fromkeys(runs, 0)
    tick, moved = NOW - 100 * SECOND, True
    while moved:
        moved = False
        for rank, each in runs.items():
            tick += 1000
            if each.flying is None and len(each.done) < len(each.calls):
                name, peer, size = each.calls[len(each.done)]
                if name == "host":
                    continue
                kind = OpKind.P2P if peer >= 0 else OpKind.COLLECTIVE
                sizes = counts.setdefault((rank, name, peer), [])
                seq = len(sizes)
                sizes.append(size)
                collectives[rank] += kind is OpKind.COLLECTIVE
                each.flying = Op(name, kind, seq, 0, size, 7, tick, peer=peer)
                moved = True
            elif each.flying is not None:
                op = each.flying
                half = "send" if op.name == "recv" else "recv"
                if op.kind is OpKind.P2P:
                    theirs = counts.get((op.peer, half, rank), [])
                    ready = len(theirs) > op.seq and theirs[op.seq] == op.size_bytes
                else:
                    ready = min(collectives.values()) > op.seq
                if ready:
                    each.done.append(replace(op, end_ns=tick))
                    key = (rank, op.name, op.peer)
                    ended[key] = ended.get(key, 0) + 1
                    each.flying, moved = None, True
    views = []
    for rank, each in runs.items():
        flying = [each.flying] if each.flying else []
        hook = state(rank, RANKS, each.done, flying, [Communicator(0, rank, RANKS, "0")])
        transfers = tuple(
            TransferCount(0, name == "recv", peer, 0, len(sizes), ended.get((r, name, peer), 0),
                          tuple(sizes[-4:]))
            for (r, name, peer), sizes in counts.items() if r == rank and peer >= 0
        )  # fmt: skip
        stack = {"send": "recv", "recv": "recv", "allreduce": "all_reduce"}
        standing = stack[each.flying.name] if each.flying else "lock"
        views.append(view(rank, RANKS, stack=standing, hook=replace(hook, transfers=transfers)))
    return views


def verdict_of(fault: Sequence[Call], before: int = STEPS, rank: int = BAD) -> HangVerdict:
    """Of a pipeline in which one rank makes these calls in the step after some good ones."""
    programs = {r: stage(r) * (before + 3) for r in range(RANKS)}
    programs[rank] = [*stage(rank) * before, *fault, *stage(rank) * 2]
    return attribute(job(run(programs)))


RECV, SEND, GRADIENT, BACK, LOSS = stage(BAD)
GRADIENT_OP = Op("recv", OpKind.P2P, STEPS, 0, KIB, 7, NOW, peer=2)


def test_a_stage_that_stops_is_named_and_the_chain_behind_it_is_not() -> None:
    verdict = verdict_of([RECV, ("host", -1, 0)])
    assert named(verdict) == [(BAD, Category.BLOCKED)]
    assert verdict.culprits[0].reasons[2] == (
        "rank 2 waits for it in recv #6 from rank 1 of the default group (1 KiB); of its sends to "
        "rank 2 it has called 6"
    )


def test_a_send_that_is_left_out() -> None:
    verdict = verdict_of([RECV, GRADIENT, BACK, LOSS])
    (culprit,) = verdict.culprits
    # Both are in a receive from each other: whether the send comes later cannot be seen.
    assert (culprit.rank, culprit.category) == (BAD, Category.SWAPPED_TRANSFERS)
    assert "both receive first" in culprit.sentence
    assert "at this point of earlier steps it called send" in culprit.reasons


def test_a_send_that_is_left_out_before_a_collective() -> None:
    verdict = verdict_of([RECV, SEND, GRADIENT, LOSS])
    (culprit,) = verdict.culprits
    assert (culprit.rank, culprit.category) == (BAD, Category.SKIPPED_TRANSFER)
    assert culprit.sentence.startswith(
        "skipped its send to rank 0 (1 KiB) and went on to all_reduce #6 of the default group"
    )


def test_a_send_and_a_receive_that_are_swapped() -> None:
    verdict = verdict_of([BACK, RECV, SEND, GRADIENT, LOSS])
    assert named(verdict) == [(BAD, Category.SWAPPED_TRANSFERS)]
    assert "both send first" in verdict.culprits[0].sentence


def test_a_collective_that_is_left_out_before_a_chain_of_transfers() -> None:
    verdict = verdict_of([RECV, SEND, GRADIENT, BACK])
    (culprit,) = verdict.culprits
    assert (culprit.rank, culprit.category) == (BAD, Category.SKIPPED)
    assert culprit.sentence.startswith(
        "skipped all_reduce #6 of the default group and went on to recv #7 from rank 0"
    )


@pytest.mark.parametrize("size_bytes", [2 * KIB, KIB // 2])
def test_a_send_of_another_size(size_bytes: int) -> None:
    verdict = verdict_of([RECV, ("send", 2, size_bytes), GRADIENT, BACK, LOSS])
    assert named(verdict) == [(BAD, Category.UNEQUAL_TRANSFER)]


@pytest.mark.parametrize(("name", "size_bytes", "at_fault"), [
    ("recv", KIB // 2, BAD), ("send", 2 * KIB, BAD + 1)
])  # fmt: skip
def test_a_batch_in_which_gloo_ends_whoever_receives_too_little(
    name: str, size_bytes: int, at_fault: int
) -> None:
    programs = {r: stage(r) * STEPS for r in range(RANKS)}
    views = run(programs)

    def posts(rank: int, call: str, peer: int, size: int, *, is_waited_for: bool) -> None:
        """Called after all of the above; what is waited for is another transfer of the batch."""
        hook = views[rank].hook
        assert hook is not None
        counts = {(c.receives, c.peer): c for c in hook.transfers}
        key = (call == "recv", peer)
        old = counts[key]
        counts[key] = replace(old, posted=old.posted + 1, sizes=(*old.sizes[-3:], size))
        flying = (Op(call, OpKind.P2P, old.posted, 0, size, 7, NOW, peer=peer),)
        hook = replace(hook, transfers=tuple(counts.values()))
        views[rank] = replace(
            views[rank], hook=replace(hook, in_flight=flying) if is_waited_for else hook
        )

    sizes = {"recv": KIB, "send": KIB, name: size_bytes}
    posts(BAD, "send", BAD + 1, KIB, is_waited_for=True)
    posts(BAD, "recv", BAD + 1, sizes["recv"], is_waited_for=False)
    posts(BAD + 1, "recv", BAD, KIB, is_waited_for=True)
    posts(BAD + 1, "send", BAD, sizes["send"], is_waited_for=False)
    alive = attribute(job(views))
    assert Category.UNEQUAL_TRANSFER not in {c.category for c in alive.culprits}
    views[BAD] = replace(views[BAD], alive=False, exit_code=-6, process_state="", dump=None)
    verdict = attribute(job(views))
    assert named(verdict) == [(at_fault, Category.UNEQUAL_TRANSFER)]
    assert any("was ended in recv #6" in reason for reason in verdict.culprits[0].reasons)
    # What was ended for another reason is named for that.
    views[BAD] = replace(views[BAD], exit_code=-9)
    assert named(attribute(job(views))) == [(BAD, Category.DEAD)]


def test_the_end_of_a_send_of_another_size_does_not_make_it_usual() -> None:
    programs = {r: stage(r) * (STEPS + 3) for r in range(RANKS)}
    programs[BAD] = [*stage(BAD) * STEPS, RECV, ("send", 2, 2 * KIB), GRADIENT]
    views = run(programs)
    hook = views[BAD].hook
    assert hook is not None
    (sent,) = hook.in_flight
    after = replace(GRADIENT_OP, start_ns=sent.start_ns + 2)
    hook = replace(
        hook, recent=(*hook.recent, replace(sent, end_ns=sent.start_ns + 1)), in_flight=(after,)
    )
    views[BAD] = replace(views[BAD], hook=hook)
    assert named(attribute(job(views))) == [(BAD, Category.UNEQUAL_TRANSFER)]


def test_in_the_first_step_nobody_is_named_without_proof() -> None:
    verdict = verdict_of([RECV, SEND, GRADIENT, LOSS], before=0)
    assert verdict.culprits == ()


def test_an_evaluation_in_an_early_step_accuses_nobody() -> None:
    programs = {r: [*stage(r) * 2, LOSS, *stage(r) * (STEPS + 3)] for r in range(RANKS)}
    programs[BAD] = [*stage(BAD) * 2, LOSS, *stage(BAD) * STEPS, RECV, SEND, GRADIENT, LOSS]
    assert named(attribute(job(run(programs)))) == [(BAD, Category.SKIPPED_TRANSFER)]


def test_where_most_of_a_ring_deviate_nobody_is_named() -> None:
    programs = {r: stage(r) * (STEPS + 3) for r in range(RANKS)}
    instead = {0: ("recv", 1, KIB), 1: LOSS, 2: LOSS}
    programs |= {r: [*stage(r) * STEPS, call] for r, call in instead.items()}
    verdict = attribute(job(run(programs)))
    assert (verdict.culprits, bool(verdict.inconclusive)) == ((), True)


@pytest.mark.parametrize("rank", [0, 2, 3])
@pytest.mark.parametrize("at", range(4))
def test_whatever_call_is_left_out_the_rank_is_named(rank: int, at: int) -> None:
    calls = stage(rank)
    at %= len(calls)
    verdict = verdict_of([*calls[:at], *calls[at + 1 :]], rank=rank)
    assert [c.rank for c in verdict.culprits] == [rank]
