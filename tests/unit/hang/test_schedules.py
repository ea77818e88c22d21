"""1F1B, in which the same few calls come again and again within a step: which stage went wrong."""

from __future__ import annotations

import pytest

from relkit.hang.attribute import attribute
from relkit.hang.model import Category, HangVerdict
from relkit.hang.past import expected_instead
from tests.unit.hang.hang_builders import job, named, op, state, view
from tests.unit.hang.test_transfers import KIB, LOSS, RANKS, Call, run

MICRO_BATCHES, STEPS = 8, 4
LAST = RANKS - 1


def steps_of(rank: int, swapped: int = -1, without_receive: int = -1) -> list[Call]:
    """One step; even ranks send first, but for one exchange; one activation is not received."""
    warm = LAST - rank
    before = ("recv", rank - 1, KIB), ("send", rank - 1, KIB)
    after = ("send", rank + 1, KIB), ("recv", rank + 1, KIB)
    calls: list[Call] = []

    def exchange(number: int, parts: list[Call]) -> None:
        first = "send" if (rank % 2 == 0) is not (number == swapped) else "recv"
        calls.extend(sorted(parts, key=lambda part: part[0] != first))

    def receive(number: int) -> list[Call]:
        wanted = rank and number < MICRO_BATCHES and number != without_receive
        return [before[0]] if wanted else []

    for number in range(warm):
        calls += receive(number)
        calls += [after[0]] if rank < LAST else []
    calls += receive(warm)
    for back in range(MICRO_BATCHES - warm):
        exchange(back + warm, list(after) if rank < LAST else [])
        exchange(back + warm + 1, [*([before[1]] if rank else []), *receive(back + warm + 1)])
    for _ in range(warm):
        calls += [after[1]]
        calls += [before[1]] if rank else []
    return [*calls, LOSS]


def verdict_of(rank: int, fault: list[Call]) -> HangVerdict:
    programs = {r: steps_of(r) * (STEPS + 2) for r in range(RANKS)}
    programs[rank] = [*steps_of(rank) * STEPS, *fault, *steps_of(rank)]
    return attribute(job(run(programs)))


@pytest.mark.parametrize("rank", range(RANKS))
@pytest.mark.parametrize("number", [4, 6])
def test_an_exchange_in_the_wrong_order(rank: int, number: int) -> None:
    verdict = verdict_of(rank, steps_of(rank, swapped=number))
    assert named(verdict) == [(rank, Category.SWAPPED_TRANSFERS)]


@pytest.mark.parametrize("rank", [1, 2, LAST])
@pytest.mark.parametrize("number", [3, 5])
def test_a_receive_that_is_left_out(rank: int, number: int) -> None:
    (culprit,) = verdict_of(rank, steps_of(rank, without_receive=number)).culprits
    assert culprit.rank == rank
    assert culprit.category in (Category.SKIPPED_TRANSFER, Category.SWAPPED_TRANSFERS)


def test_what_was_left_out_is_what_came_at_this_point_of_the_step() -> None:
    # After so few calls, an earlier step went on with a receive, or at its end with a collective.
    step = ["recv", "send"] * MICRO_BATCHES + ["allreduce"]
    names = [*step * STEPS, "recv", "send", "send"]
    ops = [op(name, age_s=len(names) - at) for at, name in enumerate(names)]
    expected = expected_instead(view(0, 1, hook=state(0, 1, ops)), 2)
    assert expected is not None
    assert expected.name == "recv"
