"""Notes between nodes: over a real store, in parts, never waiting, and safe to read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch._C._distributed_c10d import PrefixStore, TCPStore

from relkit.errors import BadDump
from relkit.hang.model import CpuUse, RankView
from relkit.hook.model import Communicator, HookState, Op, OpKind, TransferCount
from relkit.launch.hang import codec
from relkit.launch.job import exchange
from relkit.launch.job.exchange import ExchangeBroken, MemoryMailbox, StoreMailbox
from relkit.stacks.model import Frame, RankDump, ThreadStack


@pytest.fixture
def store() -> TCPStore:
    return TCPStore("127.0.0.1", 0, 1, True, timedelta(seconds=5))


def test_store_notes(store: TCPStore) -> None:
    first = StoreMailbox(PrefixStore("job", store), 0, 2, "0")
    second = StoreMailbox(PrefixStore("job", store), 1, 2, "0")
    assert second.get("a") is None
    for note in (b"one\nline\x00", b""):
        first.put("a", note)
        # The store does not confirm what is set; it answers the same connection in order.
        assert first.get("a") == note
        assert second.get("a") == note


def test_a_note_that_was_read_can_be_forgotten(store: TCPStore) -> None:
    first, second = StoreMailbox(store, 0, 2, "0"), StoreMailbox(store, 1, 2, "0")
    first.put("a", b"1")
    assert first.get("a") == b"1"
    second.remove("a")
    second.remove("a")
    assert first.get("a") is None
    first.put("a", b"2")
    assert first.get("a") == b"2"
    assert second.get("a") == b"2"
    memory = MemoryMailbox()
    memory.remove("a")


def test_a_missing_note_is_not_waited_for(store: TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whoever waits for it does so for an hour: pytest ends the test long before.
    monkeypatch.setattr(exchange, "STORE_TIMEOUT_S", 3600.0)
    store.set_timeout(timedelta(hours=1))
    assert StoreMailbox(store, 0, 2, "0").get("never") is None


def test_large_notes_go_in_parts(store: TCPStore) -> None:
    mailbox = StoreMailbox(store, 0, 2, "0")
    large = bytes(range(256)) * (3 * exchange.PART_BYTES // 256) + b"tail"
    mailbox.put("large", large)
    assert mailbox.get("large") == large
    mailbox.put("large", b"small again")
    assert mailbox.get("large") == b"small again"


def test_generations_do_not_mix(store: TCPStore) -> None:
    StoreMailbox(store, 0, 2, "0").put("a", b"old")
    assert StoreMailbox(store, 0, 2, "1").get("a") is None


@pytest.mark.parametrize("raw", ["", "x", "1 5 0\nabc", "99999999 1 1\n", "-1 1 1\n", "1 1 1"])
def test_a_foreign_value_reads_as_absent(store: TCPStore, raw: str) -> None:
    store.set("relkit/0/a", raw)
    assert StoreMailbox(store, 0, 2, "0").get("a") is None


def test_too_large_a_note_is_refused(store: TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MESSAGE_BYTES", 10)
    with pytest.raises(ExchangeBroken):
        StoreMailbox(store, 0, 2, "0").put("a", b"12345678901")


def _put_until_refused(mailbox: StoreMailbox) -> None:
    # More than once: the kernel takes the first bytes for a closed connection without complaint.
    for _ in range(1000):
        mailbox.put("a", b"2")


@contextmanager
def store_elsewhere() -> Iterator[tuple[subprocess.Popen[str], StoreMailbox]]:
    """A process that hosts a store until its input ends, and a mailbox in that store."""
    code = (
        "import sys, torch.distributed as d;"
        "s = d.TCPStore('127.0.0.1', 0, 1, True);"
        "print(s.port, flush=True);"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as host:
        assert host.stdout
        client = TCPStore("127.0.0.1", int(host.stdout.readline()), 1, False, timedelta(seconds=5))
        yield host, StoreMailbox(client, 1, 2, "0")


def test_a_dead_store_is_said_and_soon() -> None:
    with store_elsewhere() as (host, mailbox):
        mailbox.put("a", b"1")
        host.kill()
        host.wait(10)
    began = time.monotonic()
    with pytest.raises(ExchangeBroken, match="store"):
        _put_until_refused(mailbox)
    with pytest.raises(ExchangeBroken, match="store"):
        mailbox.get("a")
    assert time.monotonic() - began < exchange.STORE_TIMEOUT_S + 5


@pytest.mark.long
def test_a_store_that_is_cut_off_holds_no_launcher_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with store_elsewhere() as (host, mailbox):
        host.send_signal(signal.SIGSTOP)
        os.waitpid(host.pid, os.WUNTRACED)
        asking = threading.Thread(target=mailbox.get, args=("a",))
        asking.start()
        began = time.monotonic()
        monkeypatch.setattr(exchange, "STORE_TIMEOUT_S", 0.2)
        exchange.wait_for_thread(asking, mailbox, 120)
        waited_s = time.monotonic() - began
        blocked = asking.is_alive()
        host.send_signal(signal.SIGCONT)
        # From here on it answers: the thread is waited for as long as it needs.
        monkeypatch.setattr(exchange, "STORE_TIMEOUT_S", 100)
        exchange.wait_for_thread(asking, mailbox, 120)
        assert not asking.is_alive()
        host.kill()
    assert blocked
    assert 0.2 <= waited_s < 60


def test_a_store_that_is_cut_off_is_said_and_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with store_elsewhere() as (host, mailbox):
        mailbox.put("a", b"1")
        host.send_signal(signal.SIGSTOP)
        os.waitpid(host.pid, os.WUNTRACED)
        monkeypatch.setattr(exchange, "STORE_TIMEOUT_S", 0.2)
        began = time.monotonic()
        for call in (mailbox.get, mailbox.remove, lambda key: mailbox.put(key, b"2")):
            with pytest.raises(ExchangeBroken, match=r"has not answered for 0\.2 s"):
                call("a")
        assert time.monotonic() - began < 20
        assert mailbox.is_stuck
        monkeypatch.setattr(exchange, "STORE_TIMEOUT_S", 100)
        host.send_signal(signal.SIGCONT)
        mailbox.put("a", b"3")
        assert mailbox.get("a") == b"3"
        host.kill()


def _state(rank: int) -> HookState:
    op = Op("allreduce", OpKind.COLLECTIVE, 41, 0, 4, 77, 5)
    return HookState(
        pid=100 + rank,
        start_ticks=9,
        rank=rank,
        local_rank=rank,
        world_size=4,
        now_ns=10,
        boot_to_unix_ns=3,
        started=40,
        finished=39,
        last_finish_ns=4,
        in_flight=(op,),
        recent=(op,) * codec.MAX_RECENT_OPS,
        communicators=(Communicator(0, rank, 4, "0", 41),),
        missing=("x",),
        transfers=(TransferCount(0, True, 1, 7, 5, 4, (8, 8)),),
    )


def test_views_survive_the_way() -> None:
    views = (
        RankView(0, "a", 1, True, "S", _state(0), cpu=CpuUse(1.5, 2.0, 0.5)),
        RankView(1, "b", 2, False, exit_code=-11, failed_unix_s=3.25, error="boom"),
    )
    assert codec.decode_views(codec.encode_views(views, {"at": 1})) == (views, {"at": 1})


def _dump(rank: int, size: int = 1) -> RankDump:
    frames = (Frame("f" * size, "a.py:1"),)
    return RankDump(rank, 4, 9, "S (sleeping)", (), (ThreadStack(1, "main", frames),))


def test_captures_survive_the_way() -> None:
    views, dumps = (RankView(0, "a", 1, True),), (_dump(0), _dump(1))
    note, left_out = codec.encode_capture(views, dumps, 1 << 20)
    assert left_out == ()
    assert codec.decode_capture(note) == (views, dumps)


def test_the_largest_dump_is_left_out_first() -> None:
    noisy = RankDump(1, 4, 9, "S", notes=tuple(str(i * 7919) for i in range(3000)))
    note, left_out = codec.encode_capture((), (_dump(0), noisy), 2000)
    assert left_out == (1,)
    assert [dump.rank for dump in codec.decode_capture(note)[1]] == [0]


@given(st.binary(max_size=200))
def test_hostile_bytes_are_bad_dumps(data: bytes) -> None:
    for read in (codec.decode_views, codec.decode_capture):
        with pytest.raises(BadDump):
            read(data)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["views", "dumps", "hook", "rank", "0"]), inner)
        ),
        max_leaves=10,
    )
)
def test_hostile_json_is_a_bad_dump_or_empty(plain: object) -> None:
    import json
    import zlib

    data = zlib.compress(json.dumps(plain).encode())
    for read in (codec.decode_views, codec.decode_capture):
        try:
            views, _ = read(data)
        except BadDump:
            continue
        assert views == ()


@pytest.mark.parametrize("sources", ["text", 7, ["a"], {"said": 5}, {"disputes": 1}])
def test_hostile_sources_are_a_bad_dump(sources: object) -> None:
    views, _ = codec.decode_views(codec.encode_views((RankView(0, "h", 1, True),)))
    assert len(views) == 1
    plain = codec.unpack(codec.encode_views(views))
    plain["views"][0]["sources"] = sources
    with pytest.raises(BadDump, match="a node's views cannot be read"):
        codec.decode_views(codec.pack(plain))


def test_a_bomb_is_refused() -> None:
    with pytest.raises(BadDump, match="larger"):
        codec.unpack(codec.pack({"views": ["0" * 100_000]}), limit_bytes=1000)


def test_memory_mailbox() -> None:
    notes: dict[str, bytes] = {}
    first, second = MemoryMailbox(0, 2, notes), MemoryMailbox(1, 2, notes)
    first.put("a", b"1")
    assert second.get("a") == b"1"
    assert second.get("b") is None
