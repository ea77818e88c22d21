"""Files of timelines that are cut, huge or made up: an error with a next step, or what is whole."""

from __future__ import annotations

import json
import struct
import zlib
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relkit.cli import run
from relkit.errors import BadInputFile, RelkitError
from relkit.hook.model import Communicator, HookState, Op, OpKind
from relkit.hook.stored_state import state_text
from relkit.stacks.dumpfile import encode
from relkit.stacks.model import RankDump
from relkit.timeline.merge import Clocks, merge
from relkit.timeline.recording_file import MAGIC, read_recording
from relkit.timeline.sinks import SINKS
from relkit.timeline.sources import find_sources
from relkit.timeline.xpu_timer_file import read_xpu_timer
from tests.timeline import made_up
from tests.timeline.trace_processor import TraceProcessor


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("whole")
    made_up.job(folder, 1, steps=6)
    return (folder / "00000-00001.rktimeline").read_bytes()


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    made_up.job(tmp_path, 2, steps=3)
    timeline = read_recording(tmp_path / "00001-00002.rktimeline")
    assert timeline.identity.rank == 1
    assert timeline.groups[0].size == 2
    assert len(timeline.rows) == 9
    assert timeline.steps["number"].tolist() == [0, 1, 2]
    assert timeline.cut == ""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_file_is_read_as_far_as_it_goes_or_refused(
    tmp_path: Path, whole: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(damaged))) :]
    path = tmp_path / "00000-00001.rktimeline"
    path.write_bytes(damaged)
    sink = SINKS["perfetto"](BytesIO())
    # Anything but an error that relkit expects is a failure.
    with suppress(RelkitError):
        assert len(merge(find_sources([path]), sink, Clocks.ALIGN, 1e6).ranks) == 1


def frame(kind: bytes, content: bytes) -> bytes:
    packed = zlib.compress(content)
    return kind + struct.pack("<I", len(packed)) + packed


HEAD = {
    "rank": 0, "world_size": 1, "host": "h", "pid": 1, "clock": "c", "unix_offset_ns": 0,
    "begin_ns": 0, "hooks": [["x", 1]],
}  # fmt: skip


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"RKTL",
        MAGIC + frame(b"ROWS", b""),
        MAGIC + frame(b"HEAD", b"[]"),
        MAGIC + frame(b"HEAD", json.dumps({**HEAD, "rank": "0"}).encode()),
        MAGIC + frame(b"HEAD", json.dumps({**HEAD, "rank": 1 << 70}).encode()),
        MAGIC + frame(b"HEAD", json.dumps({**HEAD, "hooks": [["x", 99]]}).encode()),
        MAGIC + frame(b"HEAD", json.dumps({**HEAD, "hooks": 5}).encode()),
        MAGIC + frame(b"HEAD", json.dumps(HEAD).encode()) + frame(b"ROWS", b"odd"),
        MAGIC + frame(b"HEAD", json.dumps(HEAD).encode()) + frame(b"TAIL", b'{"groups": 3}'),
        MAGIC + frame(b"HEAD", json.dumps(HEAD).encode()) + frame(b"TAIL", b'{"lost": 3}'),
        MAGIC + frame(b"HEAD", json.dumps(HEAD).encode()) + frame(b"ROWS", bytes(128 << 20)),
        MAGIC + b"HEAD" + struct.pack("<I", 0xFFFFFFFF),
    ],
)
def test_a_hostile_file_is_an_error_with_a_next_step(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "00000-00001.rktimeline"
    path.write_bytes(content)
    assert run(["timeline", "merge", str(path), "-o", str(tmp_path / "out")]) == 3
    said = capsys.readouterr().err
    assert "next: " in said
    assert "Traceback" not in said


def field(number: int, value: int | bytes) -> bytes:
    from relkit.stacks.wire import bytes_field, varint

    if isinstance(value, bytes):
        return bytes_field(number, value)
    return varint(number << 3) + varint(value)


def xpu_timer_files(folder: Path, rank: int) -> Path:
    """As DLRover's hook.proto has them: KernelTraces, and the names beside it."""
    start_us = 1_790_000_000_000_000
    product = field(1, b"\x01\x08\x10\x20") + field(2, b"bf16") + field(7, b"cublasGemmEx")
    transfer = field(3, 0xABC) + field(5, b"bf16") + field(6, 2) + field(8, 4) + field(9, 4096)
    traces = b"".join(
        field(1, field(2, code) + field(3, start_us + at) + field(4, 100) + field(5, 7) + debug)
        for code, at, debug in ((1, 0, field(7, product)), (2, 200 + rank, field(9, transfer)))
    )
    host = field(2, field(1, start_us + 500) + field(2, 20) + field(3, b"GC"))
    path = folder / f"{rank:05d}-00002.timeline"
    path.write_bytes(traces + host + field(3, 77) + field(4, rank))
    path.with_name(path.name + ".meta").write_text("1,xpu_timer_gemm\n2,ncclAllReduce\n")
    return path


def test_xpu_timers_own_timelines_are_read(tmp_path: Path) -> None:
    timeline = read_xpu_timer(xpu_timer_files(tmp_path, 1))
    assert timeline.identity.rank == 1
    assert [(hook.name, hook.kind) for hook in timeline.hooks] == [
        ("xpu_timer_gemm", OpKind.GEMM), ("allreduce", OpKind.COLLECTIVE), ("gc", OpKind.MARK),
    ]  # fmt: skip
    assert timeline.rows["flops"][0] == 2 * 1 * 8 * 16 * 32
    assert timeline.details[0]["shape_bmnk"] == "1x8x16x32"
    assert (timeline.rows["end_ns"] - timeline.rows["start_ns"]).tolist() == [100e3, 100e3, 20e3]
    assert timeline.groups[0].name == f"{0xABC:016x}"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_timeline_of_xpu_timer_is_no_traceback(
    tmp_path: Path, data: st.DataObject
) -> None:
    path = xpu_timer_files(tmp_path, 0)
    damaged = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged)
    with suppress(BadInputFile):
        assert len(read_xpu_timer(path).rows)


def test_two_ranks_of_xpu_timer_are_merged(tmp_path: Path) -> None:
    for rank in (0, 1):
        xpu_timer_files(tmp_path, rank)
    trace = tmp_path / "out"
    options = ["--clocks", "as-they-are"]
    assert run(["timeline", "merge", str(tmp_path), "-o", str(trace), *options]) == 0
    assert trace.stat().st_size > 300


def test_what_a_hang_left_is_drawn(tmp_path: Path) -> None:
    """The collectives that ended, and the one that did not."""
    for rank in (0, 1):
        groups = (Communicator(0, rank, 2, "0"),)
        done = Op("allreduce", OpKind.COLLECTIVE, 3, 0, 64, 9, 1_000 + rank, 5_000)
        flying = Op("allreduce", OpKind.COLLECTIVE, 4, 0, 64, 9, 6_000)
        state = HookState(
            9, 1, rank, rank, 2, 9_000, 1_790_000_000_000_000_000, 2, 1, 5_000,
            in_flight=(flying,), recent=(done,), communicators=groups,
        )  # fmt: skip
        dump = RankDump(rank, 2, 9, "S", host="here", hook_json=state_text(state, 10))
        (tmp_path / f"{rank:05d}-00002.stacktrace").write_bytes(encode(dump))
    trace = tmp_path / "hang.pftrace"
    assert run(["timeline", "merge", str(tmp_path), "-o", str(trace)]) == 0
    with TraceProcessor(trace) as processor:
        rows = processor.query("select dur from slice where name = 'allreduce' order by ts")
    assert [row["dur"] for row in rows] == [4_000, 3_999, -1, -1]


def test_two_files_of_one_rank_are_not_mixed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        made_up.job(tmp_path / name, 1)
    assert run(["timeline", "merge", str(tmp_path), "-o", str(tmp_path / "out")]) == 2
    assert "are of rank 0" in capsys.readouterr().err


def test_a_folder_without_timelines_says_how_to_get_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["timeline", "merge", str(tmp_path), "-o", str(tmp_path / "out")]) == 3
    assert "relkit timeline record" in capsys.readouterr().err
