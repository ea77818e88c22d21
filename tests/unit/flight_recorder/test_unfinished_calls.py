"""Calls that have ended on some ranks and not on others, and ranks that lag behind in calling."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.flight_recorder.analyze import find_sources, judged
from relkit.flight_recorder.parse import parse_dump
from relkit.hang.attribute import attribute
from relkit.hang.model import Category, HangVerdict, JobView
from relkit.hook.model import Communicator, HookState
from tests.unit.flight_recorder.flight_builders import SECOND_NS, Plain, document, entry, steps
from tests.unit.hang.hang_builders import job, op, state, view

Named = list[tuple[int, Category]]


def verdict_of(folder: Path, documents: Mapping[int, Plain]) -> HangVerdict:
    for rank, plain in documents.items():
        (folder / f"fr_trace_rank_{rank}").write_bytes(pickle.dumps(plain))
    return judged(*find_sources([folder]))[1]


def named(folder: Path, documents: Mapping[int, Plain]) -> Named:
    return [(c.rank, c.category) for c in verdict_of(folder, documents).culprits]


def calls(
    last: int, unfinished: int, *, name: str = "all_reduce", backend: str = "nccl",
    state: str = "scheduled",
) -> list[Plain]:  # fmt: skip
    """Collectives 1 to `last`; those from `unfinished` on have not ended."""
    entries = [
        entry(seq, name, "completed" if seq < unfinished else "scheduled")
        for seq in range(1, last + 1)
    ]
    if unfinished <= last:
        entries[unfinished - 1] = entry(unfinished, name, state)
    return [{**each, "profiling_name": f"{backend}:{name}"} for each in entries]


def of_world(world: int, lists: Mapping[int, list[Plain]], usual: list[Plain]) -> dict[int, Plain]:
    groups = {"0": range(world)}
    return {rank: document(lists.get(rank, usual), groups) for rank in range(world)}


@pytest.mark.parametrize("state", ["scheduled", "started"])
@pytest.mark.parametrize("backend", ["nccl", "nccl2", "xccl", "hccl"])
@pytest.mark.parametrize(("world", "stuck"), [(2, 1), (4, 2), (9, 0), (16, 15)])
def test_a_call_that_has_ended_elsewhere_accuses_the_device(
    tmp_path: Path, world: int, stuck: int, backend: str, state: str
) -> None:
    late = calls(12, 5, backend=backend, state=state)
    dumps = of_world(world, {stuck: late}, calls(12, 10, backend=backend))
    verdict = verdict_of(tmp_path, dumps)
    (culprit,) = verdict.culprits
    assert (culprit.rank, culprit.category) == (stuck, Category.DEVICE)
    assert culprit.sentence.startswith(
        "its device has not finished all_reduce #5 of the default group, which "
    )


@pytest.mark.parametrize("name", ["_all_gather_base", "_reduce_scatter_base", "all_to_all",
                                  "all_reduce_barrier"])  # fmt: skip
def test_each_collective_that_needs_all(tmp_path: Path, name: str) -> None:
    dumps = of_world(4, {1: calls(9, 6, name=name)}, calls(9, 9, name=name))
    assert named(tmp_path, dumps) == [(1, Category.DEVICE)]


def test_gloo_has_no_device_to_accuse(tmp_path: Path) -> None:
    dumps = of_world(4, {1: calls(9, 2, backend="gloo")}, calls(9, 9, backend="gloo"))
    (culprit,) = verdict_of(tmp_path, dumps).culprits
    assert (culprit.rank, culprit.category) == (1, Category.BLOCKED)
    assert culprit.sentence.startswith("it has not finished all_reduce #2")


def test_gloo_notes_the_end_of_a_call_late(tmp_path: Path) -> None:
    """The host may have gone on already: what has begun just now accuses nobody."""
    dumps = of_world(4, {1: calls(9, 8, backend="gloo")}, calls(9, 9, backend="gloo"))
    assert named(tmp_path, dumps) == []


def test_a_rank_that_has_waited_long_for_the_last_to_join_accuses_nobody(tmp_path: Path) -> None:
    """gloo: what counts is how long all have been in it, and not how long this rank has been."""
    dumps = of_world(4, {1: calls(9, 2, backend="gloo")}, calls(9, 9, backend="gloo"))
    joined = dumps[3]["entries"][1]
    joined["time_created_ns"] = joined["time_discovered_started_ns"] = 9 * SECOND_NS - 10**7
    assert named(tmp_path, dumps) == []


def test_a_root_that_is_done_with_its_broadcast_accuses_nobody(tmp_path: Path) -> None:
    """It ends as soon as it has sent; those that have not received may wait for one another."""
    stuck = calls(6, 6, name="broadcast")
    dumps = of_world(4, {0: calls(6, 7, name="broadcast")}, stuck)
    assert named(tmp_path, dumps) == []


def test_operations_that_have_ended_need_not_be_listed(tmp_path: Path) -> None:
    """torch can write those alone that have not; how far a rank has come its counts say."""
    dumps = of_world(4, {2: calls(12, 5)}, calls(12, 10))
    for rank, plain in dumps.items():
        done = 4 if rank == 2 else 9
        plain["entries"] = [e for e in plain["entries"] if e["state"] != "completed"]
        counts = {"last_enqueued_collective": "12", "last_completed_collective": str(done)}
        plain["pg_status"] = {"0": counts}
    assert named(tmp_path, dumps) == [(2, Category.DEVICE)]


def test_counts_of_groups_follow_the_order_in_which_they_were_made() -> None:
    plain = document([entry(7, state="scheduled", group=("9", "tp"), pg_id=4)],
                     {"0": range(4), "9": (0, 1), "11": (0, 2)})  # fmt: skip
    counts = {"0": 3, "4": 7, "6": 5}
    plain["pg_status"] = {
        key: {"last_enqueued_collective": str(n), "last_completed_collective": n - 1}
        for key, n in counts.items()
    }
    dump = parse_dump(plain, 0)
    assert dump.enqueued == {"0": 3, "9": 7, "11": 5}
    assert dump.completed == {"0": 2, "9": 6, "11": 4}
    # Where an entry contradicts that, nothing but the entries counts.
    plain["entries"][0]["pg_id"] = 6
    assert parse_dump(plain, 0).enqueued == {"9": 5}


@given(st.integers(3, 8), st.data())
def test_another_numbering_of_the_ranks_gives_the_same_answer(
    world: int, data: st.DataObject
) -> None:
    stuck = data.draw(st.integers(0, world - 1))
    first = data.draw(st.integers(1, 8))
    order = data.draw(st.permutations(range(world)))
    lists = [calls(9, first) if rank == stuck else calls(9, 9) for rank in range(world)]
    groups = {"0": range(world)}
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        before = named(Path(one), {r: document(each, groups) for r, each in enumerate(lists)})
        dumps = {order[r]: document(each, groups) for r, each in enumerate(lists)}
        after = named(Path(other), dumps)
    assert before == [(stuck, Category.DEVICE)]
    assert after == [(order[stuck], Category.DEVICE)]


@pytest.mark.parametrize("lag", [1, 4])
@pytest.mark.parametrize(("world", "late"), [(4, 2), (8, 0), (16, 15)])
def test_a_rank_that_has_called_less_than_the_others_is_where_the_waiting_ends(
    tmp_path: Path, world: int, late: int, lag: int
) -> None:
    """All devices wait in #5; one host has stopped calling, and the others went on."""
    dumps = of_world(world, {late: calls(12 - lag, 5)}, calls(12, 5))
    (culprit,) = verdict_of(tmp_path, dumps).culprits
    assert (culprit.rank, culprit.category) == (late, Category.BLOCKED)
    assert culprit.sentence.startswith(f"has called no more than #{12 - lag} of the default group")
    assert culprit.score < 0.7


@pytest.mark.parametrize("newest", [(12, 12, 12, 12), (12, 12, 9, 9), (12, 11, 10, 9)])
def test_hosts_that_are_not_equally_far_ahead_accuse_nobody(
    tmp_path: Path, newest: Sequence[int]
) -> None:
    dumps = {rank: document(calls(last, 5)) for rank, last in enumerate(newest)}
    assert named(tmp_path, dumps) == []


def test_of_several_that_lag_the_last_is_named(tmp_path: Path) -> None:
    lists = {1: calls(10, 5), 2: calls(7, 5)}
    dumps = of_world(7, lists, calls(12, 5))
    assert [rank for rank, _ in named(tmp_path, dumps)] == [2]


def live(rank: int, *, seq: int, age_s: float) -> HookState:
    """A rank of a running job, of which the hook tells: the device is in this collective."""
    flying = op(seq=seq, age_s=age_s, in_flight=True)
    flying = replace(flying, enqueue_ns=flying.start_ns)
    done = [op(seq=number, age_s=40.0 - number) for number in range(seq)]
    return state(rank, 4, done, [flying], [Communicator(0, rank, 4, "0", 9)])


def seen(age_s: float) -> JobView:
    hooks = [live(rank, seq=5 if rank == 3 else 9, age_s=age_s) for rank in range(4)]
    return job([view(rank, 4, hook=hook) for rank, hook in enumerate(hooks)])


def test_a_running_job_is_judged_by_the_same_rule() -> None:
    (culprit,) = attribute(seen(30.0)).culprits
    assert (culprit.rank, culprit.category) == (3, Category.DEVICE)
    assert "has not finished all_reduce #5 of the default group" in culprit.sentence


def test_looks_at_running_ranks_are_not_of_one_moment() -> None:
    assert attribute(seen(1.0)).culprits == ()


def test_a_look_ahead_of_the_last_rank_to_join_accuses_nobody() -> None:
    """Rank 3 was looked at while it waited for rank 0, which has joined since: all go on now."""
    hooks = [live(rank, seq=5 if rank == 3 else 9, age_s=30.0) for rank in range(4)]
    joined = op(seq=5, age_s=1.0)
    hooks[0] = state(
        0, 4, [*(op(seq=number, age_s=40.0 - number) for number in range(5)), joined],
        [], [Communicator(0, 0, 4, "0", 9)],
    )  # fmt: skip
    assert attribute(job([view(r, 4, hook=hook) for r, hook in enumerate(hooks)])).culprits == ()


def test_ranks_as_text(tmp_path: Path) -> None:
    """torchcomms: numbers and commas, states that never change, and numbers from 0."""
    for late in (0, 3):
        dumps = {}
        for rank in range(4):
            entries = steps(7 if rank == late else 8, "scheduled")
            if rank == late:
                entries[-1] = entry(7)
            for number, each in enumerate(entries):
                ended = each["retired"]
                each |= {"state": "scheduled", "collective_seq_id": number, "retired": ended}
                each["process_group"] = ["main_comm", "nccl"]
            dumps[rank] = document(entries)
            dumps[rank]["pg_config"] = {
                "main_comm": {"name": "main_comm", "desc": "nccl", "ranks": "0,1,2,3"}
            }
        folder = tmp_path / str(late)
        folder.mkdir()
        assert named(folder, dumps) == [(late, Category.BLOCKED)]


def old(entries: Sequence[Plain]) -> Plain:
    """As torch 2.2 and 2.3 write them: one number for all, and no names of groups."""
    plain = []
    for number, each in enumerate(entries, start=1):
        kept = {
            key: value
            for key, value in each.items()
            if key not in ("collective_seq_id", "p2p_seq_id", "is_p2p", "process_group",
                           "timeout_ms", "input_dtypes", "output_dtypes")
        }  # fmt: skip
        plain.append({**kept, "seq_id": number, "pg_id": 0, "record_id": number})
    return {"version": "1.5", "entries": plain}


@pytest.mark.parametrize("late", [0, 1, 3])
def test_versions_of_torch_2_2_are_read(tmp_path: Path, late: int) -> None:
    dumps = {r: old(steps(7, "completed") if r == late else steps(8)) for r in range(4)}
    assert named(tmp_path, dumps) == [(late, Category.BLOCKED)]


def test_old_versions_number_sends_and_collectives_together(tmp_path: Path) -> None:
    """What differs is how many sends a rank made, and not which collectives."""
    dumps = {}
    for rank in range(4):
        sends = [{**entry(1), "profiling_name": f"nccl:send {rank}->0"}] * rank
        dumps[rank] = old([*sends, *steps(6)])
    assert named(tmp_path, dumps) == []
    for plain in dumps.values():
        for each in plain["entries"]:
            each["record_id"] += 5000
    with pytest.raises(ValueError, match=r"torch 2\.4 is needed"):
        parse_dump(dumps[1], 1)
