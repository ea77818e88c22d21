"""A host whose name leads nowhere: its ranks meet on the loopback, or it is said."""

from __future__ import annotations

import socket
import threading

import pytest

from relkit.launch.options import is_left_open, split
from relkit.launch.peers.local_address import settle_local_address
from relkit.own_name import OwnName, own_name

_NOWHERE = OwnName("nosuch", "Name or service not known")


def _settled(line: str, own: OwnName = _NOWHERE, spares: int = 0) -> tuple[str | None, str]:
    typed = [*line.split(), "train.py"]
    options = split(typed, []).torchrun
    said = settle_local_address(options, is_left_open(options, typed), spares, lambda _: own)
    return options.local_addr, said


@pytest.mark.parametrize(
    "line", ["--standalone", "", "--rdzv-backend c10d --rdzv-endpoint localhost:29517 --nnodes 1"]
)
def test_the_ranks_of_a_single_node_meet_on_the_loopback(line: str) -> None:
    address, said = _settled(line)
    assert address == "127.0.0.1"
    assert said == "the name of this host, 'nosuch', does not resolve: its ranks meet at 127.0.0.1"


@pytest.mark.parametrize(
    ("line", "spares"),
    [
        ("--nnodes 2 --rdzv-backend c10d --rdzv-endpoint h:1", 0),
        ("--nnodes 1:4 --rdzv-backend c10d --rdzv-endpoint h:1", 0),
        ("--nnodes 1 --rdzv-backend c10d --rdzv-endpoint h:1", 1),
    ],
)
def test_of_several_nodes_it_is_only_said(line: str, spares: int) -> None:
    address, said = _settled(line, spares=spares)
    assert address is None
    assert "add it to /etc/hosts, or give --local-addr ADDRESS" in said


@pytest.mark.parametrize(
    "line",
    [
        "--standalone --local-addr 10.0.0.7",
        "--nnodes 1 --master-addr 127.0.0.1 --master-port 29500",
        "--nnodes 2 --node-rank 0 --master-addr 10.0.0.1",
    ],
)
def test_where_the_name_is_not_needed_nothing_is_said(line: str) -> None:
    address, said = _settled(line)
    assert said == ""
    assert address in (None, "10.0.0.7")


def test_a_name_that_resolves_is_left_to_torch() -> None:
    assert _settled("--standalone", OwnName("host0", "")) == (None, "")


def test_a_name_server_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def silent() -> str:
        asked.wait()
        return "late"

    monkeypatch.setattr(socket, "getfqdn", silent)
    try:
        own = own_name(0.05)
    finally:
        asked.set()
    assert (own.name, own.problem) == (socket.gethostname(), "no answer within 0.05 s")


@pytest.mark.parametrize("name", ["nosuch.invalid", "a" * 300, "x..y"])
def test_a_name_that_is_none_is_no_trouble(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda: name)
    own = own_name(60.0)
    assert own.name == name
    assert own.problem
