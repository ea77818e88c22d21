"""The dump file: round trips, Google's protobuf on the other side, names, and permissions."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given

from relkit.errors import BadDump, UnwritablePath
from relkit.stacks.dumpfile import decode, encode, file_name, parse_name, read_dump, write_dump
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack
from tests.unit.stacks.dump_strategies import dumps
from tests.unit.stacks.xpu_messages import Stacktrace

GOLD = Path(__file__).parents[2] / "data/xpu_timer/eight_ranks"

DUMP = RankDump(
    rank=3,
    world_size=8,
    pid=41,
    process_state="S (sleeping)",
    native=(ThreadStack(41, "python", (Frame("f", "lib.so", "", "ab12", 77),), Role.MAIN, "S"),),
    python=(
        ThreadStack(41, "MainThread", (Frame("g", "a.py:3", "a"),), Role.MAIN, "", 9, True, True),
    ),
    host="node1",
    job_id="run-7",
    captured_unix_ns=5,
    engines=("hook", "py-spy"),
    notes=("",),
    hook_json="{}",
)


@given(dumps())
def test_what_is_written_is_read_back(dump: RankDump) -> None:
    assert decode(encode(dump)) == dump
    assert decode(encode(dump), memo={}) == dump


@given(dumps())
def test_frames_from_a_memo_equal_frames_read(dump: RankDump) -> None:
    memo: dict[bytes, tuple[Frame, ...]] = {}
    decode(encode(dump), memo=memo)
    assert decode(encode(dump), memo=memo) == dump


@given(dumps())
def test_google_protobuf_reads_our_files(dump: RankDump) -> None:
    message = Stacktrace.FromString(encode(dump))
    assert (message.rank, message.pid) == (dump.rank, dump.pid)
    assert message.process_state == dump.process_state
    for thread, read in zip(dump.native, message.stacktrace, strict=True):
        assert (read.pid, read.thread_name) == (thread.os_thread_id, thread.name)
        assert [(f.func_name, f.file_name) for f in read.frames] == [
            (f.func, f.source) for f in thread.frames
        ]
    for thread, read in zip(dump.python, message.py_stacktrace, strict=True):
        assert read.os_thread_id == thread.os_thread_id
        assert read.thread_id == thread.thread_id
        assert read.thread_name == thread.name
        assert (read.active, read.owns_gil) == (thread.active, thread.owns_gil)
        assert [(f.func_name, f.file_name, f.module) for f in read.frames] == [
            (f.func, f.source, f.module) for f in thread.frames
        ]


@given(dumps())
def test_what_google_protobuf_writes_again_is_still_the_same_dump(dump: RankDump) -> None:
    # Its own field order, our facts carried along as unknown fields.
    assert decode(Stacktrace.FromString(encode(dump)).SerializeToString()) == dump


def test_a_file_of_the_original_tool() -> None:
    dump = read_dump(GOLD / "00002-00008.stacktrace")
    assert (dump.rank, dump.world_size, dump.pid) == (2, 8, 41_194)
    assert dump.process_state == "S (sleeping)"
    assert (dump.job_id, dump.host, dump.captured_unix_ns) == ("", "", 0)
    # No role is in such a file: the pid tells the main thread, names and stacks tell the others.
    assert {thread.name: thread.role for thread in dump.native} == {
        "pt_main_thread": Role.MAIN,
        "pt_nccl_watchdg": Role.WATCHDOG,
        "nccl_proxy_svc": Role.COMMUNICATION,
        "pt_autograd_0": Role.AUTOGRAD,
        "pt_autograd_1": Role.AUTOGRAD,
    }
    assert dump.native[0].frames[0].func == "do_futex_wait.constprop.0@@GLIBC_2.34"
    assert dump.python[0].frames[-1] == Frame("<module>", "pretrain_gpt.py:221")


def test_equal_stacks_are_equal_bytes_whatever_the_thread_ids() -> None:
    def tail(lwp: int) -> bytes:
        thread = ThreadStack(lwp, "python", DUMP.native[0].frames, Role.MAIN, "S")
        whole = encode(RankDump(1, 2, 3, "S", native=(thread,)))
        return whole[whole.index(b"python") :]

    assert tail(5) == tail(3_000_000)


def test_a_role_that_the_file_says_is_not_guessed_again() -> None:
    said = ThreadStack(7, "pt_autograd_0", (Frame("ncclProxyService", "x"),), Role.OTHER)
    whole = encode(RankDump(1, 2, 3, "S", native=(said,)))
    assert decode(whole).native[0].role is Role.OTHER
    message = Stacktrace.FromString(whole)
    message.DiscardUnknownFields()
    assert decode(message.SerializeToString()).native[0].role is Role.AUTOGRAD
    message.stacktrace[0].thread_name = "python"
    assert decode(message.SerializeToString()).native[0].role is Role.COMMUNICATION


def test_only_frames_that_share_an_evaluation_take_room() -> None:
    def size(*entries: bool) -> int:
        frames = tuple(Frame("f", "a.py:1", entry=entry) for entry in entries)
        return len(encode(RankDump(1, 2, 3, "S", python=(ThreadStack(1, "t", frames),))))

    assert size(True, True) + 3 == size(False, True)
    foreign = decode(Stacktrace.FromString(encode(DUMP)).SerializeToString())
    assert all(frame.entry for thread in foreign.python for frame in thread.frames)


@pytest.mark.parametrize(
    ("rank", "world_size", "name"),
    [
        (3, 8, "00003-00008.stacktrace"),
        (99_999, 100_000, "99999-100000.stacktrace"),
        (131_071, 131_072, "131071-131072.stacktrace"),
    ],
)
def test_names_have_five_digits_or_more(rank: int, world_size: int, name: str) -> None:
    assert file_name(rank, world_size) == name
    assert parse_name(name) == (rank, world_size)


@pytest.mark.parametrize(
    "name", ["3-8.stacktrace", "00003-00008.stacktrace.bak", "00003.stacktrace", "a", "-1-00008"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(BadDump, match="RRRRR-WWWWW"):
        parse_name(name)


def test_the_header_beats_the_name() -> None:
    read = decode(encode(DUMP), name="00007-00009.stacktrace")
    assert (read.rank, read.world_size) == (3, 8)
    foreign = Stacktrace(rank=4, process_state="S").SerializeToString()
    assert decode(foreign, name="00007-00009.stacktrace").rank == 4
    # proto3 does not write a 0, so here the name is all there is.
    assert decode(Stacktrace(pid=1).SerializeToString(), name="00007-00009.stacktrace").rank == 7


def test_a_written_file_is_private_and_whole(tmp_path: Path) -> None:
    path = write_dump(tmp_path, DUMP)
    assert path.name == "00003-00008.stacktrace"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_dump(path) == DUMP
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(UnwritablePath):
        write_dump(tmp_path / "none", DUMP)
