"""Who is at fault, by flight-recorder dumps alone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from relkit.flight_recorder.job_view import job_view
from relkit.flight_recorder.parse import parse_dump
from relkit.hang.model import Category, HangVerdict
from tests.unit.flight_recorder.flight_builders import (
    Plain,
    document,
    entry,
    steps,
    transfer,
    verdict,
)


def all_of(usual: Plain, *others: tuple[int, Plain]) -> Mapping[int, Plain]:
    """Four ranks, of which some are different."""
    return {**dict.fromkeys(range(4), usual), **dict(others)}


def blamed(judged: HangVerdict) -> list[tuple[int, Category]]:
    return [(culprit.rank, culprit.category) for culprit in judged.culprits]


def test_the_rank_that_others_wait_for_is_named_with_its_last_call() -> None:
    judged = verdict(all_of(document(steps(6)), (2, document(steps(5, "completed")))))
    assert blamed(judged) == [(2, Category.BLOCKED)]
    (culprit,) = judged.culprits
    assert "its newest operation was called in gpt/train.py:75 step" in culprit.reasons
    assert any("in all_reduce #6 of the default group" in reason for reason in culprit.reasons)
    assert [victims.ranks for victims in judged.victims] == ["0-1,3"]


def test_another_call_than_that_of_the_group() -> None:
    odd = document(steps(6, name="broadcast"))
    judged = verdict(all_of(document(steps(6)), (1, odd)))
    assert blamed(judged) == [(1, Category.MISMATCH)]
    assert judged.culprits[0].sentence == (
        "called broadcast as #6 of the default group, where the others call all_reduce"
    )


def test_a_collective_that_was_skipped() -> None:
    one_step = [entry(seq, "all_reduce" if seq % 2 else "broadcast") for seq in range(1, 8)]
    usual = document([*one_step, entry(8, "broadcast", "started")])
    skipped = document([*one_step[:-1], entry(7, "broadcast", "started")])
    judged = verdict(all_of(usual, (3, skipped)))
    assert blamed(judged) == [(3, Category.SKIPPED)]


@pytest.mark.parametrize(
    ("others", "calls"),
    [
        ({"shape": (5, 4)}, ("all_reduce of 80 B", "one of 64 B")),
        ({"output_sizes": [[5, 4]]}, ("all_reduce of 80 B", "one of 64 B")),
        ({"dtype": "Int"}, ("all_reduce of Int", "all_reduce of Float")),
        ({"output_dtypes": ["Half"]}, ("all_reduce of Float/Half", "all_reduce of Float")),
    ],
)
def test_another_tensor_than_that_of_the_group(others: Plain, calls: tuple[str, str]) -> None:
    judged = verdict(all_of(document(steps(6)), (1, document(steps(6, **others)))))
    assert blamed(judged) == [(1, Category.MISMATCH)]
    assert judged.culprits[0].sentence == (
        f"called {calls[0]} as #6 of the default group, where the others call {calls[1]}"
    )


def test_the_parts_of_a_coalesced_collective_are_one_call() -> None:
    def coalesced(second: int) -> Plain:
        parts = [
            entry(6, "_broadcast_oop", "started", shape=(4, 4)),
            entry(6, "_broadcast_oop", "started", shape=(second, second)),
            entry(6, "ALLGATHER_coalesced", "started", shape=()),
        ]
        return document([*steps(5, "completed"), *parts])

    assert blamed(verdict(all_of(coalesced(4)))) == []
    judged = verdict(all_of(coalesced(4), (0, coalesced(5))))
    assert blamed(judged) == [(0, Category.MISMATCH)]


@pytest.mark.parametrize("name", ["gather", "scatter", "all_to_all", "reduce_scatter_v", "barrier"])
def test_sizes_that_may_differ_prove_nothing(name: str) -> None:
    judged = verdict(
        all_of(document(steps(6, name=name)), (1, document(steps(6, name=name, shape=(9, 9)))))
    )
    assert judged.culprits == ()


def test_internal_names_of_one_call_are_equal() -> None:
    odd = document(steps(6, name="_all_gather_base"))
    judged = verdict(all_of(document(steps(6, name="all_gather_into_tensor_coalesced")), (1, odd)))
    assert judged.culprits == ()


def test_a_group_of_some_ranks_is_judged_by_its_own_ranks() -> None:
    groups = {"0": range(4), "7": (1, 3)}
    own = entry(2, "all_gather", "started", group=("7", "tp"))
    first = entry(1, "all_gather", group=("7", "tp"))
    # Rank 3 is in the next step of the world; rank 1 waits for it in their group.
    members = {
        0: document(steps(6), {"0": range(4)}),
        1: document([*steps(5, "completed"), first, own], groups),
        2: document(steps(6), {"0": range(4)}),
        3: document([*steps(5, "completed"), first], groups),
    }
    judged = verdict(members)
    assert blamed(judged) == [(3, Category.BLOCKED)]
    assert any('all_gather #2 of group "tp 7" (ranks 1,3)' in r for r in judged.culprits[0].reasons)


def test_a_member_that_never_used_a_group_is_known_by_the_configuration() -> None:
    groups = {"0": range(4), "7": (1, 3)}
    first = entry(1, "all_gather", "started", group=("7", "tp"))
    members = {rank: document(steps(5, "completed"), groups) for rank in range(4)}
    members[1] = document([*steps(5, "completed"), first], groups)
    assert blamed(verdict(members)) == [(3, Category.BLOCKED)]


def test_groups_that_gloo_does_not_list_are_those_that_used_them() -> None:
    unlisted = {"": ()}
    first = entry(1, group=("1", "undefined"), profiling_name="gloo:all_reduce")
    stuck = entry(2, state="scheduled", group=("1", "undefined"), profiling_name="gloo:all_reduce",
                  retired=False)  # fmt: skip
    members = {
        0: document([first, stuck], unlisted),
        1: document([first], unlisted),
        2: document([], unlisted),
    }
    assert blamed(verdict(members)) == [(1, Category.BLOCKED)]


def test_a_collective_that_all_have_called_accuses_nobody() -> None:
    judged = verdict(all_of(document(steps(6))))
    assert judged.culprits == ()
    assert "no rank is late" in judged.inconclusive


def test_what_the_device_has_not_begun_is_queued_behind_what_it_is_in() -> None:
    running = entry(6, state="started")
    behind = entry(7, state="scheduled")
    dump = parse_dump(document([*steps(5, "completed"), running, behind]), 0)
    hook = job_view([dump], "/dumps").ranks[0].hook
    assert hook is not None
    assert [(op.seq, op.queued) for op in hook.in_flight] == [(6, False), (7, True)]
    assert hook.last_finish_ns == 5_000_002_000
    assert hook.now_ns == 7_000_000_000


def test_an_entry_that_torch_saw_end_is_not_in_flight() -> None:
    # gloo's entries stay "scheduled" for ever.
    retired = entry(6, state="scheduled", retired=True, profiling_name="gloo:all_reduce")
    usual = document([*steps(5, "completed"), retired])
    later = document([*steps(5, "completed"), retired, entry(7, state="scheduled")])
    assert blamed(verdict(all_of(later, (0, usual)))) == [(0, Category.BLOCKED)]


def test_the_world_is_as_large_as_its_largest_group() -> None:
    job = job_view([parse_dump(document(steps(3), {"0": range(6)}), 1)], "/dumps")
    assert job.world_size == 6
    assert [view.absent_reason for view in job.ranks if view.rank != 1] == [
        "no dump of it in /dumps"
    ] * 5
    assert job.hang_timeout_s == 600.0


def test_a_pipeline_waits_for_the_stage_that_did_not_send() -> None:
    # Stage 1 got its micro-batch and sent nothing on; stages 2 and 3 wait for one another's input.
    judged = verdict({
        0: document([transfer(1, "send 0->1"), transfer(2, "send 0->1", "scheduled")]),
        1: document([transfer(1, "recv 1<-0")]),
        2: document([transfer(1, "recv 2<-1", "started")]),
        3: document([transfer(1, "recv 3<-2", "started")]),
    })  # fmt: skip
    assert blamed(judged) == [(1, Category.BLOCKED)]
    assert "rank 2" in " ".join(judged.culprits[0].reasons)


def test_of_a_batch_of_transfers_only_its_last_entry_says_that_it_ended() -> None:
    parts = [transfer(1, "send 0->1", "scheduled"), transfer(1, "recv 0<-1", "scheduled")]
    whole = transfer(1, "coalesced", "completed")
    dump = parse_dump(document([*parts, whole, transfer(2, "recv 0<-1", "started")]), 0)
    hook = job_view([dump], "/dumps").ranks[0].hook
    assert hook is not None
    assert [(op.name, op.seq, op.peer) for op in hook.in_flight] == [("recv", 1, 1)]
    assert {(t.receives, t.posted, t.done) for t in hook.transfers} == {(False, 1, 1), (True, 2, 1)}


def test_transfers_are_not_counted_where_the_first_ones_were_overwritten() -> None:
    late = transfer(900, "recv 0<-1", "started", record_id=5000)
    dump = parse_dump(document([late]), 0)
    hook = job_view([dump], "/dumps").ranks[0].hook
    assert hook is not None
    assert hook.transfers == ()
    assert hook.in_flight[0].peer == 1


def test_of_a_coalesced_collective_only_its_last_entry_says_that_it_ended() -> None:
    parts = [entry(6, "_broadcast_oop", "scheduled"), entry(6, "ALLGATHER_coalesced")]
    dump = parse_dump(document([*steps(5, "completed"), *parts]), 0)
    hook = job_view([dump], "/dumps").ranks[0].hook
    assert hook is not None
    assert hook.in_flight == ()


def test_parts_of_different_types_are_no_dispute_where_all_ranks_have_them() -> None:
    parts = [entry(6, "_broadcast_oop", "started", dtype=dtype) for dtype in ("Float", "Half")]
    whole = entry(6, "ALLGATHER_coalesced", "started", shape=(), dtype="")
    usual = document([*steps(5, "completed"), *parts, whole])
    late = document(steps(5, "completed"))
    (culprit,) = verdict(all_of(usual, (2, late))).culprits
    assert culprit.rank == 2
    assert any("in all_gather #6 of the default group" in reason for reason in culprit.reasons)
