"""A device that has not begun what its rank has called is distinguished from a late host."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relkit.hang.attribute import attribute
from relkit.hang.model import Category, JobView
from relkit.hook.model import Communicator, HookState, Op, OpKind
from tests.unit.hang.hang_builders import job, op, state, view

WORLD = 4
CULPRIT = 2


def on_device(waits: Op, *, queued: bool) -> Op:
    return replace(waits, enqueue_ns=waits.start_ns - (0 if queued else 500), queued=queued)


def reduce(*, queued: bool = False, group: int = 0) -> Op:
    return on_device(op(seq=7, group=group, age_s=11.0, in_flight=True), queued=queued)


def kernel() -> Op:
    flying = op("launch", -1, group=-1, kind=OpKind.KERNEL, age_s=12.0, in_flight=True)
    return on_device(flying, queued=False)


def hook(rank: int, *flying: Op, seq: int = -1) -> HookState:
    groups = (
        Communicator(0, rank, WORLD, "4f1c", seq),
        Communicator(1, rank, WORLD, "77aa", seq),
    )
    return state(rank, WORLD, [op(seq=6, age_s=12.0)], flying, groups)


def seen(culprits: HookState) -> JobView:
    hooks = [hook(rank, reduce()) for rank in range(WORLD)]
    hooks[CULPRIT] = culprits
    return job([view(rank, WORLD, hook=each) for rank, each in enumerate(hooks)])


def test_a_device_that_has_not_begun_what_all_have_called() -> None:
    verdict = attribute(seen(hook(CULPRIT, reduce(queued=True))))
    (culprit,) = verdict.culprits
    assert (culprit.rank, culprit.category) == (CULPRIT, Category.DEVICE)
    assert culprit.sentence.endswith(
        "enqueued 11.0 s ago: something ahead of it on the stream does not finish"
    )
    assert "ranks 0-1,3 reached all_reduce #7" in culprit.reasons[0]


def test_the_kernel_that_does_not_end_is_named_where_it_was_timed() -> None:
    verdict = attribute(seen(hook(CULPRIT, kernel(), seq=7)))
    (culprit,) = verdict.culprits
    assert (culprit.rank, culprit.category) == (CULPRIT, Category.DEVICE)
    assert culprit.sentence.endswith("launch has been running there for 12.0 s")


def test_a_rank_that_has_not_called_is_late_on_its_host_whatever_its_device_does() -> None:
    verdict = attribute(seen(hook(CULPRIT, kernel())))
    assert [(c.rank, c.category) for c in verdict.culprits] == [(CULPRIT, Category.BLOCKED)]


def test_a_device_in_another_transfer_waits_for_its_peers_there() -> None:
    verdict = attribute(seen(hook(CULPRIT, reduce(queued=True), reduce(group=1), seq=7)))
    assert CULPRIT not in {c.rank for c in verdict.culprits if c.category is Category.DEVICE}


def test_all_devices_in_it_name_nobody() -> None:
    verdict = attribute(seen(hook(CULPRIT, reduce())))
    assert verdict.culprits == ()
    assert "points to the network" in verdict.inconclusive


def test_no_device_in_it_names_nobody() -> None:
    hooks = [hook(rank, reduce(queued=True)) for rank in range(WORLD)]
    verdict = attribute(job([view(rank, WORLD, hook=each) for rank, each in enumerate(hooks)]))
    assert verdict.culprits == ()
    assert "no device has begun it" in verdict.inconclusive


@pytest.mark.parametrize("names", [("broadcast",), ("allreduce", "other")])
def test_what_its_group_disagrees_about_accuses_no_device(names: tuple[str, ...]) -> None:
    """Another call under the same number ends, or does not, for reasons of its own."""
    hooks = []
    for rank in range(WORLD):
        name = names[-1] if rank == CULPRIT else "allreduce"
        ended = op(name, 7, age_s=11.0)
        flying = on_device(op(name, 7, age_s=11.0, in_flight=True), queued=False)
        groups = (Communicator(0, rank, WORLD, "4f1c", 7),)
        done, open_ = ([], [flying]) if rank == CULPRIT else ([ended], [])
        hooks.append(state(rank, WORLD, [op(seq=6, age_s=12.0), *done], open_, groups))
    verdict = attribute(job([view(rank, WORLD, hook=each) for rank, each in enumerate(hooks)]))
    assert Category.DEVICE not in {culprit.category for culprit in verdict.culprits}
