"""Asking worker servers: whatever they say, or do not say, is an answer or a reason, in time."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.flight_recorder import worker_server
from relkit.flight_recorder.worker_server import ask
from tests.patience import PATIENCE
from tests.unit.flight_recorder.fake_servers import http, serving

pytestmark = pytest.mark.timeout(30 * PATIENCE)
PING = "POST /handler/ping"
LONG_S = 20.0 * PATIENCE


def saying(answer: bytes) -> Callable[[str], bytes]:
    return lambda _: answer


def test_all_are_asked_at_once(tmp_path: Path) -> None:
    with ExitStack() as stack:
        paths = {rank: tmp_path / f"{rank}.sock" for rank in range(4)}
        for rank, path in paths.items():
            stack.enter_context(serving(path, saying(http(b"%d" % rank * 300_000))))
        answers = ask(paths, PING, LONG_S)
    assert answers.failures == {}
    assert answers.bodies == {rank: b"%d" % rank * 300_000 for rank in range(4)}


def test_one_that_says_nothing_costs_the_deadline_and_not_the_others(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "0", lambda _: None),
        serving(tmp_path / "1", lambda _: http(b"pong")) as requests,
    ):
        answers = ask({0: tmp_path / "0", 1: tmp_path / "1"}, PING, 0.5 * PATIENCE)
    assert answers.bodies == {1: b"pong"}
    assert answers.failures == {0: f"no answer in {0.5 * PATIENCE:g} s"}
    assert requests == [PING]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "no HTTP answer"),
        (b"\x00\xff" * 50_000, "no HTTP answer"),
        (b"SSH-2.0\r\n\r\n", "no HTTP answer"),
        (http(b"no", "404 Not Found"), "404 Not Found"),
        (http(b"whole")[:-2], "cut off"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nbody", "cut off"),
        (http(b"x" * 200_000), "more than 100000 bytes"),
    ],
)
def test_a_bad_answer_is_a_reason(tmp_path: Path, said: bytes, why: str) -> None:
    with serving(tmp_path / "0", lambda _: said):
        answers = ask({0: tmp_path / "0"}, PING, LONG_S, limit_bytes=100_000)
    assert answers.bodies == {}
    assert why in answers.failures[0]


def test_nobody_listens(tmp_path: Path) -> None:
    left = tmp_path / "left.sock"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(left))
    answers = ask({0: tmp_path / "none", 1: left}, PING, LONG_S)
    assert set(answers.failures) == {0, 1}


def test_one_that_is_too_busy_to_accept_does_not_hold_us_up(tmp_path: Path) -> None:
    path = tmp_path / "0"
    with ExitStack() as stack:
        full = stack.enter_context(socket.socket(socket.AF_UNIX))
        full.bind(str(path))
        full.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            waiting.connect_ex(str(path))
        answers = ask({0: path}, PING, 0.2)
    assert set(answers.failures) == {0}


@given(st.binary(max_size=400))
def test_any_bytes_are_a_body_or_an_error(data: bytes) -> None:
    with suppress(ValueError):
        assert isinstance(worker_server._body(bytearray(data)), bytes)
