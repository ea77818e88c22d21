"""What a leader asks of other nodes beyond their summaries, and when."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from relkit.errors import BadDump
from relkit.hang.model import RankView
from relkit.hang.suspicion.whom_to_ask import whom_to_ask
from relkit.hook.model import Op, OpKind
from relkit.launch.hang import codec, leader
from relkit.launch.hang.remote_views import (
    REQUEST_KEY,
    RemoteViews,
    decode_request,
    details_key,
    encode_request,
)
from relkit.launch.hang.summary import encode_summary
from relkit.launch.job.exchange import MemoryMailbox
from relkit.ranks import RankSet
from tests.unit.launch.hang.watched_job import Job, fake_capture, gather_with, no_waiting, view

__all__ = ["fake_capture", "no_waiting"]


def test_a_healthy_job_is_asked_for_nothing() -> None:
    job = Job(stuck_at_s=1e9)
    notes: dict[str, bytes] = {}
    watches = [job.watch(MemoryMailbox(n, 2, notes), [2 * n, 2 * n + 1]) for n in range(2)]
    job.run(20, *watches)
    assert sorted(notes) == ["node/1"]


def test_all_is_asked_for_before_there_is_a_verdict_and_not_for_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(resumes_at_s=20.0)
    notes: dict[str, bytes] = {}
    first, second = (job.watch(MemoryMailbox(n, 2, notes), [2 * n, 2 * n + 1]) for n in range(2))
    gather_with(second, job, monkeypatch)
    job.run(11, first, second)
    assert decode_request(notes[REQUEST_KEY], range(4)) == {2, 3}
    told, _ = codec.decode_views(notes[details_key(1)])
    assert [each.rank for each in told] == [2, 3]
    assert all(each.hook is not None and each.hook.communicators for each in told)
    job.run(18, first, second)
    # The sentence has the operation's name, which no summary tells.
    assert job.published[0][0].trigger.startswith("all_reduce #5 of the default group in flight")
    job.run(30, first, second)
    assert decode_request(notes[REQUEST_KEY], range(4)) == set()
    before = notes[details_key(1)]
    job.run(40, first, second)
    assert notes[details_key(1)] == before


@pytest.mark.parametrize(("mates", "brought"), [(0, [0, 1, 3]), (1, [0, 1, 2, 3])])
def test_of_a_large_job_the_stacks_of_some_ranks_are_brought_to_the_leader(
    monkeypatch: pytest.MonkeyPatch, mates: int, brought: list[int]
) -> None:
    for name in ("ALL_UP_TO", "SOME", "STAND_OUT"):
        monkeypatch.setattr(sys.modules[whom_to_ask.__module__], name, 1)
    monkeypatch.setattr(leader, "ALL_UP_TO", 1)
    monkeypatch.setattr(leader, "MATES", mates)
    job = Job()
    notes: dict[str, bytes] = {}
    first, second = (job.watch(MemoryMailbox(n, 2, notes), [2 * n, 2 * n + 1]) for n in range(2))
    gather_with(second, job, monkeypatch)
    job.run(18, first, second)
    (view_of_job, verdict, report, dumps) = job.published[0]
    # Rank 3 has not come; rank 2 waits for it, in a group with the ranks of the leader's node.
    assert [dump.rank for dump in dumps] == brought
    assert [view.rank for view in view_of_job.ranks] == brought
    assert [culprit.rank for culprit in verdict.culprits] == [3]
    assert view_of_job.is_sample
    assert report.facts["world_size"] == 4
    # Its stacks are on the disk of its node.
    assert (2, 3) in job.written
    # Once it has been judged, less is asked for again.
    job.run(25, first, second)
    assert decode_request(notes[REQUEST_KEY], range(4)) == {3}


def test_who_is_asked_for_in_a_large_job_tells_as_many_operations_as_in_a_small_one() -> None:
    op = Op("allreduce", OpKind.COLLECTIVE, 1, 0, 4, 9, 1, 2)
    recent = (op,) * codec.MAX_RECENT_OPS
    views = []
    for rank in (2, 3):
        hook = view(rank, 10.0).hook
        assert hook is not None
        hook = replace(hook, world_size=1 << 17, recent=recent)
        views.append(RankView(rank, "n1", 1, alive=True, hook=hook))
    note, _ = codec.encode_capture(views, (), 1 << 20, in_full={3})
    told, _ = codec.decode_capture(note)
    kept = [len(each.hook.recent) for each in told if each.hook is not None]
    assert kept == [codec.MIN_RECENT_OPS, codec.MAX_RECENT_OPS]


def two_ends(nodes: int = 2) -> tuple[RemoteViews, dict[str, bytes]]:
    notes: dict[str, bytes] = {}
    return RemoteViews(MemoryMailbox(0, nodes, notes)), notes


def test_views_that_are_older_than_the_summary_are_not_used() -> None:
    remote, notes = two_ends()
    notes["node/1"] = encode_summary(1, 10.0, [view(2, 10.0), view(3, 10.0)])
    remote.receive(10.0)
    remote.ask(RankSet.of([3]))
    told = view(3, 10.0)
    notes[details_key(1)] = codec.encode_views([told], {"at": 10.0})
    remote.receive(10.5)
    assert remote.told() == {3: told}
    assert [each.hook for each in remote.all(10.5)] == [None, told.hook]
    notes["node/1"] = encode_summary(1, 20.0, [view(2, 20.0), view(3, 20.0)])
    remote.receive(20.0)
    assert remote.told() == {}
    assert [each.hook for each in remote.all(20.0)] == [None, None]


def test_views_are_used_for_longer_where_summaries_come_less_often() -> None:
    remote, notes = two_ends(nodes=8192)
    notes["node/1"] = encode_summary(1, 10.0, [view(3, 10.0)])
    remote.receive(10.0)
    remote.ask(RankSet.of([3]))
    notes[details_key(1)] = codec.encode_views([view(3, 10.0)], {"at": 10.0})
    for now_s, is_used in ((12.0, True), (14.0, True), (16.0, False)):
        notes["node/1"] = encode_summary(1, now_s, [view(3, now_s)])
        remote.receive(now_s)
        assert bool(remote.told()) is is_used


def test_views_that_cannot_be_read_are_left_out() -> None:
    remote, notes = two_ends()
    notes["node/1"] = encode_summary(1, 10.0, [view(2, 10.0)])
    remote.receive(10.0)
    remote.ask(RankSet.of([2]))
    for note in (b"", codec.pack({"views": 3}), codec.encode_views([view(2, 10.0)])):
        notes[details_key(1)] = note
        remote.receive(10.5)
        assert remote.told() == {}


def test_a_summary_that_cannot_be_read_leaves_the_one_before() -> None:
    remote, notes = two_ends()
    notes["node/1"] = encode_summary(1, 10.0, [view(2, 10.0)])
    remote.receive(10.0)
    notes["node/1"] = b"RS and no more"
    remote.receive(11.0)
    assert [each.rank for each in remote.all(11.0)] == [2]


@pytest.mark.parametrize(
    "note", [b"", codec.pack({}), codec.pack({"ranks": [3]}), codec.pack({"ranks": [["x", 2]]})]
)
def test_a_request_that_cannot_be_read_is_an_error(note: bytes) -> None:
    with pytest.raises(BadDump):
        decode_request(note, [3])


def test_a_request_names_ranks() -> None:
    note = encode_request(RankSet.of([1, 4, 5, 6, 900_000]))
    assert decode_request(note, [0, 1, 5, 7]) == {1, 5}
    assert decode_request(None, [0, 1]) == frozenset()
