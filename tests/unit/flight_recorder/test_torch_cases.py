"""The cases by which torch tests its own analyzer: what it makes of them, and whom relkit names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from torch.distributed.flight_recorder.components.builder import build_db
from torch.distributed.flight_recorder.components.config_manager import JobConfig
from torch.distributed.flight_recorder.components.types import COLLECTIVES, Collective
from torch.distributed.flight_recorder.components.utils import match_one_event

from relkit.hang.model import Category
from tests.unit.flight_recorder.flight_builders import (
    Plain,
    document,
    entry,
    steps,
    transfer,
    verdict,
)

WORLD = {"0": {0, 1}}
GROUPS = {"0": (0, 1)}
PAST = 5
HUNG = PAST + 1
MATCHED, TYPE, SIZE = "FULLY_MATCHED", "COLLECTIVE_TYPE_MISMATCH", "SIZE_OR_SYNTAX_MISMATCH"
DTYPE, STATE, UNDECIDED = "COLLECTIVE_DTYPE_MISMATCH", "COLLECTIVE_STATE_MISMATCH", "UNDECIDED"
# What torch calls the difference, relkit calls: the call of one rank is not that of its group.
OURS = {MATCHED: [], UNDECIDED: [], TYPE: [1], SIZE: [1], DTYPE: [1]}


def call(name: str = "all_reduce", state: str = "scheduled", **others: Any) -> Plain:  # noqa: ANN401
    """The call in which the job hangs, or which a rank ends."""
    return entry(HUNG, name, state, **others)


def gathers(outputs: Sequence[Sequence[int]], dtypes: Sequence[str]) -> Plain:
    return call("gather", output_sizes=outputs, output_dtypes=dtypes)


def torch_says(mine: Plain, theirs: Plain) -> str:
    return str(match_one_event(mine, theirs, WORLD, "0").state.name)


def named(tails: Mapping[int, Sequence[Plain]]) -> list[tuple[int, Category]]:
    """Whom relkit names where all have the same past, and then these calls."""
    members = {
        rank: document([*steps(PAST, "completed"), *tail], dict.fromkeys("0", sorted(tails)))
        for rank, tail in tails.items()
    }
    return [(culprit.rank, culprit.category) for culprit in verdict(members).culprits]


@pytest.mark.parametrize(
    ("mine", "theirs", "kind"),
    [
        (call(), call(), MATCHED),
        (call(), call("all_gather"), TYPE),
        (call("all_to_all"), call("all_to_all"), UNDECIDED),
        (call(), call(input_sizes=[[5, 4]]), SIZE),
        (call(), call(output_sizes=[[5, 4]]), SIZE),
        (call(), call(output_dtypes=["Half"]), DTYPE),
        (gathers([[4, 4], [4, 4]], ["Float"]), gathers([[]], []), MATCHED),
        (gathers([[4, 4], [4, 4]], ["Float"]), gathers([[4, 4]], []), MATCHED),
    ],
)
def test_a_pair_of_calls(mine: Plain, theirs: Plain, kind: str) -> None:
    assert torch_says(mine, theirs) == kind
    blamed = named({0: [mine], 1: [theirs]})
    assert blamed == [(rank, Category.MISMATCH) for rank in OURS[kind]]


def test_a_call_that_has_ended_on_one_rank_only() -> None:
    mine, theirs = call(), call(state="completed")
    assert torch_says(mine, theirs) == STATE
    # Both have called it: nobody is late, which points to the network between them.
    assert named({0: [mine], 1: [theirs]}) == []


def test_a_call_whose_own_sizes_differ_is_that_of_all_ranks() -> None:
    odd = call(output_sizes=[[5, 4]])
    assert torch_says(odd, odd) == SIZE
    assert named({0: [odd], 1: [odd]}) == []


@pytest.mark.parametrize("name", sorted(COLLECTIVES))
def test_all_calls_that_torch_knows(name: str) -> None:
    # Equal calls accuse nobody; without one of them, the rank that did not call it is named.
    assert named({0: [call(name)], 1: [call(name)]}) == []
    assert named({0: [call(name)], 1: []}) == [(1, Category.BLOCKED)]


@pytest.mark.parametrize(
    "backend", ["nccl", "nccl2", "ncclx", "gloo", "xccl", "rccl", "mccl", "other"]
)
def test_all_backends(backend: str) -> None:
    mine = call(profiling_name=f"{backend}:all_reduce")
    assert named({0: [mine], 1: []}) == [(1, Category.BLOCKED)]


def parts(names: Sequence[str], shapes: Sequence[Sequence[int]], number: int) -> list[Plain]:
    """One coalesced collective: its parts share a number, and the last has no tensor."""
    return [
        entry(number, name, "started", shape=shape)
        for name, shape in zip(names, shapes, strict=True)
    ]


BROADCASTS = ("broadcast", "broadcast", "coalesced")
GATHERED = ("_broadcast_oop", "_broadcast_oop", "ALLGATHER_coalesced")
REDUCED = ("_reduce_oop", "_reduce_oop", "REDUCE_SCATTER_coalesced")
EVEN, UNEVEN = ((4, 4), (4, 4), ()), ((4, 4), (5, 5), ())


@pytest.mark.parametrize(
    ("names", "shapes", "blamed"),
    [
        (("allreduce_coalesced",), ((4, 4),), []),
        (BROADCASTS, EVEN, []),
        (GATHERED, UNEVEN, [(0, Category.MISMATCH)]),
        (REDUCED, EVEN, []),
    ],
)
def test_coalesced_collectives(
    names: Sequence[str], shapes: Sequence[Sequence[int]], blamed: list[tuple[int, Category]]
) -> None:
    usual = parts(names, EVEN[: len(names)], HUNG)
    tails = {0: parts(names, shapes, HUNG), 1: usual, 2: usual}
    assert all(found.pass_check for found in torch_finds(tails)) is not bool(blamed)
    assert named(tails) == blamed


def torch_finds(tails: Mapping[int, Sequence[Plain]]) -> list[Collective]:
    """What torch's analyzer makes of the same calls."""
    details = {
        f"dump_file_rank_{rank}": {**document(tail, {"0": sorted(tails)}), "rank": rank}
        for rank, tail in tails.items()
    }
    return list(build_db(details, JobConfig().parse_args([]), "2.10").collectives)


def test_a_coalesced_collective_that_one_rank_left_out() -> None:
    both, more = entry(HUNG), parts(REDUCED, EVEN, HUNG + 1)
    tails = {0: [both], 1: [both, *more]}
    assert [found.missing_ranks for found in torch_finds(tails)] == [None, {0}]
    assert named(tails) == [(0, Category.BLOCKED)]


def batch(*calls: tuple[str, int], state: str = "started") -> list[Plain]:
    """Sends and receives that begin and end together: what is called, and how many numbers."""
    made = [
        transfer(1, name, "scheduled", input_sizes=[[count]], output_sizes=[[count]])
        for name, count in calls
    ]
    return [*made, transfer(1, "coalesced", state)]


def test_batches_that_fit_may_differ_in_their_order_and_calls() -> None:
    chain = {
        0: batch(("send 0->1", 4)),
        1: batch(("send 1->2", 4), ("recv 1<-0", 4)),
        2: batch(("recv 2<-1", 4)),
    }
    assert named(chain) == []


def test_a_batch_without_the_other_half_of_a_send() -> None:
    chain = {
        0: batch(("send 0->1", 4)),
        1: batch(("send 1->2", 4), state="completed"),
        2: batch(("recv 2<-1", 4), state="completed"),
    }
    assert named(chain) == [(1, Category.BLOCKED)]


def test_sends_of_a_batch_in_another_order_than_the_receives() -> None:
    pair = {
        0: batch(("send 0->1", 100), ("send 0->1", 1000)),
        1: batch(("recv 1<-0", 1000), ("recv 1<-0", 100)),
    }
    assert {category for _, category in named(pair)} == {Category.UNEQUAL_TRANSFER}
