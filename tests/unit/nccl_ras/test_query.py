"""Asking the RAS: whatever listens there, there is an answer or a reason, in time."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from relkit.nccl_ras import query
from relkit.nccl_ras.query import NoAnswer, NobodyListens, ask, ras_address
from tests.patience import PATIENCE
from tests.unit.nccl_ras.simulated_ras import listening

pytestmark = pytest.mark.timeout(30 * PATIENCE)
LONG_S = 20.0 * PATIENCE


def test_json_is_asked_for() -> None:
    with listening(lambda: b'{"a": 1}' * 100_000) as listener:
        assert ask(("127.0.0.1", listener.port), LONG_S) == b'{"a": 1}' * 100_000
    assert listener.commands[0] == "client protocol 2"
    assert listener.commands[1].startswith("timeout ")
    assert listener.commands[2:] == ["set format json", "status"]


def test_an_older_nccl_has_no_json() -> None:
    with (
        listening(lambda: b"text", knows_json=False) as listener,
        pytest.raises(NoAnswer, match="gives no JSON"),
    ):
        ask(("127.0.0.1", listener.port), LONG_S)


@pytest.mark.parametrize("greeting", [b"SSH-2.0-OpenSSH\n", b"\xff\x00\n", b"x" * 5000])
def test_what_is_not_nccl(greeting: bytes) -> None:
    with (
        listening(lambda: b"{}", greeting=greeting) as listener,
        pytest.raises(NoAnswer, match="is not NCCL"),
    ):
        ask(("127.0.0.1", listener.port), LONG_S)


def test_an_answer_without_end() -> None:
    with (
        listening(lambda: b"x" * 300_000) as listener,
        pytest.raises(NoAnswer, match="more than 100000 bytes"),
    ):
        ask(("127.0.0.1", listener.port), LONG_S, limit_bytes=100_000)


def test_one_that_says_nothing_costs_the_deadline() -> None:
    with listening(lambda: None) as listener, pytest.raises(NoAnswer, match="no answer in 1 s"):
        ask(("127.0.0.1", listener.port), 1.0)


def test_without_time_nobody_is_asked() -> None:
    with listening(lambda: b"{}") as listener, pytest.raises(NoAnswer, match="no time is left"):
        ask(("127.0.0.1", listener.port), 0.0)
    assert listener.commands == []


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(NobodyListens):
        ask(("127.0.0.1", port), LONG_S)


@pytest.mark.parametrize("owner", [0, 1000])
def test_another_users_listener_is_not_asked(
    owner: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening(lambda: b"{}") as listener:
        table = tmp_path / "tcp"
        empty = "00000000:00000000 00:00000000 00000000"
        line = f"0: 0100007F:{listener.port:04X} 00000000:0000 0A {empty}"
        table.write_text(f"  sl  local_address\n  {line}  {owner}        0 1 1\n")
        monkeypatch.setattr(query, "_TABLES", (table, tmp_path / "none"))
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        if owner == 1000:
            assert ask(("127.0.0.1", listener.port), LONG_S) == b"{}"
        else:
            with pytest.raises(NoAnswer, match="another user"):
                ask(("127.0.0.1", listener.port), LONG_S)
            assert listener.commands == []


def test_the_kernel_says_who_listens() -> None:
    with listening(lambda: b"{}") as listener:
        assert query._users_at(listener.port) == {os.geteuid()}


def test_where_jobs_listen() -> None:
    assert ras_address({}) == ("localhost", 28028)
    assert ras_address({"NCCL_RAS_ADDR": "10.0.0.1:5000"}) == ("10.0.0.1", 5000)
    assert ras_address({"NCCL_RAS_ADDR": "[::1]:5000"}) == ("::1", 5000)
    for bad in ("10.0.0.1", ":5000", "host:0", "host:70000", "host:x"):
        with pytest.raises(NoAnswer, match="not HOST:PORT"):
            ras_address({"NCCL_RAS_ADDR": bad})
