"""Records of finished steps, from recorders that are only pretended."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from relkit.errors import BadDump
from relkit.hook import layout
from relkit.hook.events import EventBatch
from relkit.hook.model import Communicator, OpKind
from relkit.launch.job.settings import LocalRank
from relkit.process.identity import ProcessIdentity, own_identity
from relkit.straggler.collect.event_rows import Rows
from relkit.straggler.collect.node_collector import NodeCollector, _throttled
from relkit.straggler.step_record import OPERATIONS

MS = 1_000_000
SIZES = (4000, 9000, 64)
UNIX_NS = 10**18


@dataclass
class Recorder:
    """Stands for an EventReader: three all-reduces of 1 ms a step, after `own_ms` each."""

    rank: int
    own_ms: float = 5.0
    now_ns: int = 10**12
    done: int = 0
    lose: int = 0
    broken: bool = False
    names: tuple[str, ...] = ("allreduce", "sgemm", "gc")
    kinds: tuple[int, ...] = (int(OpKind.COLLECTIVE), int(OpKind.GEMM), int(OpKind.MARK))
    pid: int = 0
    identity: ProcessIdentity = field(default_factory=own_identity)
    boot_to_unix_ns: int = UNIX_NS
    steps: int = 0
    closed: bool = False

    def drain(self) -> EventBatch:
        if self.broken:
            raise BadDump("recorder file is truncated")
        count = 3 * self.steps
        rows = np.zeros(count, layout.EVENT)
        length = int((self.own_ms + 1.0) * MS)
        rows["end_ns"] = self.now_ns + length * np.arange(1, count + 1)
        rows["start_ns"] = rows["end_ns"] - MS
        rows["seq"] = self.done + self.lose + np.arange(count)
        rows["ticket"] = rows["seq"] + 1
        rows["size_bytes"] = np.array(SIZES)[rows["seq"] % 3]
        self.now_ns += count * length
        self.done += count + self.lose
        self.steps, lost, self.lose = 0, self.lose, 0
        return EventBatch(rows, lost)

    def communicators(self) -> tuple[Communicator, ...]:
        return (Communicator(0, self.rank, 2, "0"),)

    def close(self) -> None:
        self.closed = True


class RunTimes:
    """Both ranks run whenever they do not communicate."""

    def __init__(self) -> None:
        self.watched: list[tuple[int, ...]] = []
        self.step_s = 0.0

    def watch(self, pids: tuple[int, ...]) -> None:
        self.watched.append(pids)

    def set_step(self, step_s: float) -> None:
        self.step_s = step_s

    def fill(self, pid: int, rows: Rows) -> None:
        lengths = rows["end_ns"] - rows["start_ns"]
        rows["run_ns"] = rows["end_ns"] - (rows["seq"] + 1) * lengths

    def close(self) -> None:
        self.watched.append(())


class Node:
    """Two ranks with pretended recorders."""

    def __init__(self, folder: Path) -> None:
        self.recorders = [Recorder(0), Recorder(1, own_ms=7.0)]
        self.ranks = [LocalRank(0, 101), LocalRank(1, 102)]
        self.now_s = 100.0
        self.run_times = RunTimes()
        for local in self.ranks:
            (folder / f"{local.pid}.rkhook").touch()
        self.collector = NodeCollector(
            folder,
            "here",
            clock=lambda: self.now_s,
            open_events=self.open_events,
            run_times=self.run_times,
        )

    def open_events(self, path: Path) -> Recorder:
        recorder = self.recorders[int(path.stem) - 101]
        recorder.pid = os.getpid()
        return recorder

    def go(self, steps: int) -> None:
        self.now_s += 1.0
        for recorder in self.recorders:
            recorder.steps = steps


def test_steps_of_both_ranks(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.go(20)
    records = node.collector.collect(node.ranks)
    node.go(20)
    records += node.collector.collect(node.ranks)
    assert list(node.run_times.watched[-1]) == [101, 102]
    assert node.run_times.step_s == pytest.approx(3e-3 * 8.0)
    node.collector.close()
    assert list(node.run_times.watched[-1]) == []
    by_rank = {rank: [r for r in records if r.rank == rank] for rank in (0, 1)}
    assert [r.step for r in by_rank[0]] == [r.step for r in by_rank[1]]
    assert len(by_rank[0]) >= 38
    assert len({r.peers_key for r in records}) == 1
    for rank, own_ms in ((0, 5.0), (1, 7.0)):
        for record in by_rank[rank]:
            assert record.parts.local_s == pytest.approx(3e-3 * own_ms)
            assert record.host == "here"
            assert not record.exact
            assert math.isnan(record.parts.gc_s)
            assert record.begin_ns > UNIX_NS
            assert [OPERATIONS[n] for n in record.collectives["operation"]] == ["allreduce"] * 3
            assert record.groups == (("0", 2, rank),)
            assert (record.collectives["end_ns"] <= record.end_ns).all()
            assert (record.collectives["start_ns"] >= record.begin_ns).all()
    follows = zip(by_rank[0], by_rank[0][1:], strict=False)
    assert all(a.end_ns == b.begin_ns for a, b in follows)
    assert node.collector.notes() == ()


def test_what_was_lost_is_in_no_step_and_is_told(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.go(20)
    node.collector.collect(node.ranks)
    node.recorders[1].lose = 4
    node.go(20)
    records = [r for r in node.collector.collect(node.ranks) if r.rank == 1]
    assert all(r.parts.local_s == pytest.approx(21e-3) for r in records)
    assert len(records) >= 17
    assert node.collector.notes() == ("rank 1: 4 operations were lost before they were read",)


def test_a_rank_without_a_recorder_is_told(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (tmp_path / "102.rkhook").unlink()
    (tmp_path / "101.rkhook").unlink()
    assert node.collector.collect(node.ranks) == ()
    assert len(node.collector.notes()) == 2
    (tmp_path / "101.rkhook").touch()
    (tmp_path / "102.rkhook").touch()
    node.go(20)
    assert node.collector.collect(node.ranks)
    assert node.collector.notes() == ()


def test_a_recorder_that_breaks_is_told_and_harms_nobody_else(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.go(20)
    node.collector.collect(node.ranks)
    node.recorders[0].broken = True
    node.go(20)
    records = node.collector.collect(node.ranks)
    assert {r.rank for r in records} == {1}
    assert node.recorders[0].closed
    assert "truncated" in node.collector.notes()[0]


def test_a_restarted_rank_begins_anew(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.go(20)
    node.collector.collect(node.ranks)
    (tmp_path / "103.rkhook").touch()
    node.recorders.append(Recorder(1))
    node.ranks[1] = LocalRank(1, 103)
    node.go(20)
    records = [r for r in node.collector.collect(node.ranks) if r.rank == 1]
    assert records[0].step == 1
    assert node.recorders[1].closed
    node.collector.close()
    assert node.recorders[2].closed


def test_no_loop_is_told(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.recorders[0].names = ("broadcast", "sgemm", "gc")
    random = np.random.default_rng(1)
    sizes = [int(n) for n in random.integers(1, 2**40, 300)]

    def drain() -> EventBatch:
        rows = np.zeros(len(sizes), layout.EVENT)
        rows["seq"], rows["size_bytes"] = np.arange(len(sizes)), sizes
        rows["end_ns"] = rows["start_ns"] = 10**9 * (1 + rows["seq"])
        rows["ticket"] = rows["seq"] + 1
        return EventBatch(rows, 0)

    node.recorders[0].drain = drain  # type: ignore[method-assign]
    node.collector.collect(node.ranks)
    assert "relkit.step()" in node.collector.notes()[0]


def test_throttling_is_in_the_steps_that_waited_for_a_core() -> None:
    nan = np.full(4, np.nan)
    none = np.zeros(4)
    run_queue_wait_s = np.array([0.001, 0.05, 0.0, 0.02])
    local_s = np.full(4, 0.1)
    times = np.stack([local_s, none, none, nan, run_queue_wait_s, nan, nan])
    # Longest first, until the total is used up; what is left over was in no step.
    assert _throttled(np.full(4, 0.015), times).tolist() == pytest.approx([0.0, 0.05, 0.0, 0.01])
    assert _throttled(np.full(4, 0.04), times).tolist() == pytest.approx(run_queue_wait_s.tolist())
    assert _throttled(np.zeros(4), times).tolist() == [0.0] * 4
    # Where waiting is not known it is spread; where nobody counts it is not known.
    blind = np.stack([local_s, none, none, nan, nan, nan, nan])
    assert _throttled(np.full(4, 0.015), blind).tolist() == [0.015] * 4
    assert np.isnan(_throttled(nan, times)).all()
