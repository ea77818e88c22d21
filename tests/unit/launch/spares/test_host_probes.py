"""Kernels of hosts answer, or do not: a listener whose queue is full does not answer either."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from relkit.launch.spares import host_probes
from relkit.launch.spares.host_probes import HostProbes, ask
from tests.patience import PATIENCE

pytestmark = pytest.mark.timeout(30 * PATIENCE)

HOST = "127.0.0.1"
LIMIT_S = 20.0 * PATIENCE


@contextmanager
def a_port() -> Iterator[socket.socket]:
    """Of a kernel that answers, with a refusal: nobody listens."""
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        yield bound


@contextmanager
def a_deaf(bound: socket.socket) -> Iterator[None]:
    """As if the host were cut off: the kernel says nothing to those that connect from now on."""
    with ExitStack() as queue:
        bound.listen(0)
        for _ in range(2):
            waiting = queue.enter_context(socket.socket())
            waiting.setblocking(False)
            assert waiting.connect_ex(bound.getsockname()) == errno.EINPROGRESS
        yield


def sets(answered: set[str], lost: set[str]) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(answered), frozenset(lost)


def settled(probes: HostProbes, silent: tuple[str, ...] = (HOST,)) -> frozenset[str]:
    """Who does not answer a question that is asked now."""
    probes.wait(LIMIT_S)
    probes.lost([HOST], silent)
    probes.wait(LIMIT_S)
    return probes.lost([HOST], silent)


def test_a_host_answers_whether_somebody_listens_or_not() -> None:
    with a_port() as bound:
        at = (socket.AF_INET, bound.getsockname())
        assert ask({"a": at}) == sets({"a"}, set())
        bound.listen()
        assert ask({"a": at}) == sets({"a"}, set())


def test_one_of_several_does_not_answer() -> None:
    with a_port() as one, a_port() as other, a_deaf(one):
        hosts = {
            name: (socket.AF_INET, each.getsockname()) for name, each in (("a", one), ("b", other))
        }
        assert ask(hosts) == sets({"b"}, {"a"})


def test_what_the_network_says_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that nobody on its network knows is lost; without a network, nothing is known."""
    for error, lost in ((errno.EHOSTUNREACH, {"a"}), (errno.ENETUNREACH, set[str]())):
        monkeypatch.setattr(host_probes, "_once", lambda hosts, e=error: dict.fromkeys(hosts, e))
        assert ask({"a": (socket.AF_INET, (HOST, 1))}) == sets(set(), lost)


def test_more_hosts_than_are_asked_at_once() -> None:
    names = {f"n{number}" for number in range(150)}
    with a_port() as bound:
        at = (socket.AF_INET, bound.getsockname())
        assert ask(dict.fromkeys(names, at)) == sets(names, set())


def test_a_host_that_has_answered_falls_silent_and_comes_back() -> None:
    with a_port() as bound:
        probes = HostProbes(bound.getsockname()[1])
        assert probes.lost([HOST], []) == set()
        assert settled(probes) == set()
        with a_deaf(bound):
            assert settled(probes) == {HOST}
            # It has sent a heartbeat: what was known of it is forgotten.
            assert probes.lost([HOST], []) == set()
            assert settled(probes) == {HOST}
        bound.close()
        assert settled(probes) == set()


def test_a_host_that_has_never_answered_says_nothing() -> None:
    with a_port() as bound, a_deaf(bound):
        probes = HostProbes(bound.getsockname()[1])
        assert settled(probes) == set()
        assert settled(probes) == set()


def test_a_name_that_nobody_knows_says_nothing() -> None:
    probes = HostProbes(9)
    for _ in range(2):
        assert probes.lost(["no-such-host.invalid"], ["no-such-host.invalid"]) == set()
        probes.wait(LIMIT_S)


def test_nothing_is_left_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with a_port() as bound:
        at = (socket.AF_INET, bound.getsockname())
        with a_deaf(bound):
            ask({"a": at})
    assert len(list(Path("/proc/self/fd").iterdir())) == before
