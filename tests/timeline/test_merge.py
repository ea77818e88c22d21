"""Merged traces, opened again by Perfetto's own trace_processor and by its protobuf classes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from relkit.cli import run
from tests.timeline import made_up
from tests.timeline.trace_processor import TraceProcessor

LAST = (
    "select extract_arg(arg_set_id, 'debug.last_rank') last, count(*) n from slice"
    " where name = 'allreduce' and extract_arg(arg_set_id, 'debug.seq') % 2 = 0 group by last"
)
SQL_STARTS = (
    "select extract_arg(s.arg_set_id, 'debug.seq') seq, p.pid - 1 rank, s.ts, s.dur from slice s"
    " join process_track t on s.track_id = t.id join process p using (upid)"
    " where s.name = 'allreduce'"
)


def merge(folder: Path, *options: str, code: int = 0) -> Path:
    trace = folder.with_suffix(".pftrace")
    assert run(["timeline", "merge", str(folder), "-o", str(trace), "-f", *options]) == code
    return trace


@pytest.mark.parametrize("skew_ns", [0, 1_000_000, -1_000_000_000])
def test_ranks_of_hosts_with_wrong_clocks_are_put_side_by_side(
    tmp_path: Path, skew_ns: int, capsys: pytest.CaptureFixture[str]
) -> None:
    made_up.job(tmp_path / "job", 4, hosts=2, skew_ns={1: skew_ns}, slow_rank=2)
    trace = merge(tmp_path / "job", "--json")
    report = json.loads(capsys.readouterr().out)
    clock = report["clocks"][1]
    assert abs(clock["ahead_us"] - skew_ns / 1e3) <= clock["error_us"] < 200
    with TraceProcessor(trace) as processor:
        assert processor.stats() == {}
        # Rank 2 comes last to the first all-reduce of each step, and the trace says so.
        assert processor.query(LAST) == [{"last": 2, "n": 80}]
        rows = processor.query(SQL_STARTS)
        facts = processor.query(
            "select extract_arg(arg_set_id, 'debug.clock_error_us') error from slice"
            " where name = 'facts of this trace'"
        )
        arrows = processor.query("select count(*) n from flow")[0]["n"]
    assert facts[0]["error"] == pytest.approx(clock["error_us"])
    assert arrows == 40 * 3
    assert len(rows) == 160
    for seq in range(40):
        mine = [row for row in rows if row["seq"] == seq]
        assert max(row["ts"] for row in mine) <= min(row["ts"] + row["dur"] for row in mine) + 1e5


def test_values_of_products_and_collectives(tmp_path: Path) -> None:
    made_up.job(tmp_path / "job", 2, steps=3)
    with TraceProcessor(merge(tmp_path / "job")) as processor:
        products = processor.query(
            "select extract_arg(arg_set_id, 'debug.tflop_s') speed from slice where name = 'sgemm'"
        )
        moved = processor.query(
            "select extract_arg(arg_set_id, 'debug.bus_gb_s') speed,"
            " extract_arg(arg_set_id, 'debug.bytes') bytes,"
            " extract_arg(arg_set_id, 'debug.waited_us') waited, dur from slice"
            " where name = 'allreduce'"
        )
        steps = processor.query("select distinct name from slice where category = 'step'")
    assert [row["speed"] for row in products] == pytest.approx([2.0] * 6)
    for row in moved:
        # Two ranks: each link carries the bytes once, in the time after the last one came.
        took_ns = row["dur"] - row["waited"] * 1e3
        assert row["speed"] == pytest.approx(row["bytes"] / took_ns)
    assert [row["name"] for row in steps] == ["step 0", "step 1", "step 2"]


def test_a_send_and_its_receive_are_tied_and_what_flies_stays_open(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    from relkit.hook.layout import OP_RECEIVES
    from relkit.hook.model import Communicator
    from relkit.timeline.model import Lost, RankIdentity

    start = made_up.START_NS
    for rank in (0, 1):
        identity = RankIdentity(rank, 2, "host", 100, "clock", made_up.UNIX_NS)
        more = {"communicator": 0, "peer": 1 - rank, "seq": 0, "size_bytes": 64}
        if rank == 0:
            rows = made_up.row(made_up.SEND, start + 5_000, start + 9_000, **more)
        else:
            # Posted before the send began.
            more["flags"] = OP_RECEIVES
            rows = made_up.row(made_up.RECV, start + 1_000, start + 9_500, **more)
        flying = made_up.row(
            made_up.ALLREDUCE, start + 20_000, 0, communicator=0, seq=1, size_bytes=64
        )
        marks = made_up.row(made_up.GC, start + 10_000, start + 12_000)
        rows = np.concatenate([rows, flying, marks])
        groups = (Communicator(0, rank, 2, "0"),)
        lost = Lost(events=3 * rank)
        made_up.write(folder, identity, rows, groups=groups, lost=lost)
    with TraceProcessor(merge(folder)) as processor:
        arrows = processor.query(
            "select a.name a, b.name b from flow f join slice a on f.slice_out = a.id"
            " join slice b on f.slice_in = b.id where a.name != b.name"
        )
        open_ends = processor.query("select name from slice where dur = -1")
        dropped = processor.query(
            "select extract_arg(arg_set_id, 'debug.dropped') n from slice"
            " where name = 'facts of this trace'"
        )
        collected = processor.query("select dur from slice where name = 'gc'")
        assert processor.stats() == {}
    # An arrow goes from what began first.
    assert arrows == [{"a": "recv", "b": "send"}]
    assert [row["name"] for row in open_ends] == ["allreduce", "allreduce"]
    assert dropped == [{"n": 3}]
    assert [row["dur"] for row in collected] == [2_000, 2_000]


def test_chromes_json_is_the_same_trace(tmp_path: Path) -> None:
    made_up.job(tmp_path / "job", 3, steps=4)
    trace = merge(tmp_path / "job", "--format", "chrome")
    events = json.loads(trace.read_text())["traceEvents"]
    assert len([each for each in events if each.get("cat") == "collective"]) == 24
    with TraceProcessor(trace) as processor:
        assert processor.stats() == {}
        assert processor.query("select count(*) n from slice where name = 'allreduce'") == [
            {"n": 24}
        ]


def test_speedscopes_json_opens_and_closes_each_frame_in_time(tmp_path: Path) -> None:
    made_up.job(tmp_path / "job", 2, steps=4)
    whole = json.loads(merge(tmp_path / "job", "--format", "speedscope").read_text())
    assert whole["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert len(whole["profiles"]) == 4
    names = [frame["name"] for frame in whole["shared"]["frames"]]
    assert "allreduce" in names
    for profile in whole["profiles"]:
        times = [event["at"] for event in profile["events"]]
        assert times == sorted(times)
        assert [event["type"] for event in profile["events"]] == ["O", "C"] * (len(times) // 2)


def test_the_protobuf_is_as_perfettos_own_classes_read_it(tmp_path: Path) -> None:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    made_up.job(tmp_path / "job", 2, steps=2)
    trace = Trace.FromString(merge(tmp_path / "job").read_bytes())
    begins = [p for p in trace.packet if p.track_event.type == p.track_event.TYPE_SLICE_BEGIN]
    ends = [p for p in trace.packet if p.track_event.type == p.track_event.TYPE_SLICE_END]
    assert len(begins) == len(ends) == 2 * (2 * 2 + 2 + 2)


@pytest.mark.parametrize("why", ["one-way", "few", "limit"])
def test_clocks_that_cannot_be_bounded_are_refused(
    tmp_path: Path, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hook = made_up.BROADCAST if why == "one-way" else made_up.ALLREDUCE
    steps = 2 if why == "few" else 20
    made_up.job(tmp_path / "job", 4, hosts=2, steps=steps, hook=hook)
    options = ["--max-clock-error", "1"] if why == "limit" else []
    merge(tmp_path / "job", *options, code=3)
    said = capsys.readouterr().err
    words = {"one-way": "one direction", "few": "fewer than", "limit": "are allowed"}
    assert words[why] in said
    assert "next: " in said
    assert not (tmp_path / "job.pftrace").exists()
    # By the hosts' own clocks it can be drawn; who came last is then not said.
    trace = merge(tmp_path / "job", "--clocks", "as-they-are")
    with TraceProcessor(trace) as processor:
        rows = processor.query(
            "select count(*) n from slice where extract_arg(arg_set_id, 'debug.waited_us') >= 0"
        )
    assert rows == [{"n": 0}]
