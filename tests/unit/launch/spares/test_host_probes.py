"""Kernels of hosts answer, or do not: a listener whose queue is full does not answer either."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from relkit.launch.spares import host_probes
from relkit.launch.spares.host_probes import HostProbes, ask
from tests.patience import PATIENCE
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(30 * PATIENCE)

HOST = "127.0.0.1"


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


def silent_for(probes: HostProbes, least_s: float) -> None:
    """Until the host has not answered for so long."""
    eventually(lambda: probes.unanswered_s([HOST], [HOST]).get(HOST, 0.0) >= least_s, "silence")


def known(bound: socket.socket, clock: Callable[[], float] = time.monotonic) -> HostProbes:
    """A host that answers, and is asked no more."""
    probes = HostProbes(bound.getsockname()[1], clock)
    assert probes.unanswered_s([HOST], []) == {}
    are_over()
    return probes


def are_over() -> None:
    """Wait for the end of the questions."""
    eventually(lambda: not asking(), lambda: str(asking()))


def asking() -> list[str]:
    return [each.name for each in threading.enumerate() if "host probes" in each.name]


def test_a_host_answers_whether_somebody_listens_or_not() -> None:
    with a_port() as bound:
        port = bound.getsockname()[1]
        assert ask({"a": HOST}, port) == sets({"a"}, set())
        bound.listen()
        assert ask({"a": HOST}, port) == sets({"a"}, set())


def test_one_of_several_does_not_answer() -> None:
    """At the second address nobody listens: it refuses."""
    with a_port() as bound, a_deaf(bound):
        port = bound.getsockname()[1]
        assert ask({"a": HOST, "b": "127.0.0.2"}, port) == sets({"b"}, {"a"})


def test_what_the_network_says_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that nobody on its network knows is lost; without a network, nothing is known."""
    for error, lost in ((errno.EHOSTUNREACH, {"a"}), (errno.ENETUNREACH, set[str]())):
        monkeypatch.setattr(host_probes, "_once", lambda hosts, _, e=error: dict.fromkeys(hosts, e))
        assert ask({"a": HOST}, 1) == sets(set(), lost)


def test_a_host_with_an_address_of_ip_version_6() -> None:
    with socket.socket(socket.AF_INET6) as bound:
        bound.bind(("::1", 0))
        assert ask({"a": "::1"}, bound.getsockname()[1]) == sets({"a"}, set())


def test_more_hosts_than_are_asked_at_once() -> None:
    names = {f"n{number}" for number in range(150)}
    with a_port() as bound:
        assert ask(dict.fromkeys(names, HOST), bound.getsockname()[1]) == sets(names, set())


def test_a_host_that_has_answered_falls_silent_and_comes_back() -> None:
    with a_port() as bound:
        probes = known(bound)
        with a_deaf(bound):
            silent_for(probes, 0.3)
            # It has sent a heartbeat: what was known of it is forgotten.
            assert probes.unanswered_s([HOST], []) == {}
            assert probes.unanswered_s([HOST], [HOST]) == {}
            silent_for(probes, 0.3)
        bound.close()
        eventually(lambda: not probes.unanswered_s([HOST], [HOST]), "an answer")


def test_the_time_is_that_between_two_questions() -> None:
    """A host may be back the moment after it was asked."""
    now_s = [100.0]
    with a_port() as bound:
        probes = known(bound, lambda: now_s[0])
        with a_deaf(bound):
            eventually(lambda: HOST in probes.unanswered_s([HOST], [HOST]), "silence")
            # By this clock it took no time, and has had a quarter of a second all the same.
            assert probes.unanswered_s([HOST], [HOST]) == {HOST: 0.25}
            now_s[0] += 1.0
            eventually(lambda: probes.unanswered_s([HOST], [HOST]) == {HOST: 1.25}, "the next one")
            probes.unanswered_s([HOST], [])
            are_over()


def test_the_time_that_a_question_takes_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine it may be put long after its thread began to: no outage is that long."""
    now_s, by_kernel, begun_s = [100.0], host_probes.ask, list[float]()

    def first_is_late(hosts: Mapping[str, str], port: int) -> tuple[frozenset[str], frozenset[str]]:
        begun_s.append(now_s[0])
        now_s[0] = 110.0
        return by_kernel(hosts, port)

    with a_port() as bound:
        probes = known(bound, lambda: now_s[0])
        with a_deaf(bound):
            monkeypatch.setattr(host_probes, "ask", first_is_late)
            for_s = set[float]()

            def is_asked_for_the_third_time() -> bool:
                for_s.update(probes.unanswered_s([HOST], [HOST]).values())
                return len(begun_s) > 2

            eventually(is_asked_for_the_third_time, lambda: str(begun_s))
            assert begun_s[:2] == [100.0, 110.0]
            assert max(for_s, default=0.0) <= 0.25
            probes.unanswered_s([HOST], [])
            are_over()


def test_an_answer_counts_however_late_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_probes, "_ANSWER_S", -1.0)
    with a_port() as bound:
        bound.listen()
        assert ask({"a": HOST}, bound.getsockname()[1]) == sets({"a"}, set())


def test_a_host_that_answers_is_asked_twice_a_second() -> None:
    with a_port() as bound:
        probes = known(bound)
        bound.listen(64)
        bound.settimeout(0)

        def is_asked() -> bool:
            assert probes.unanswered_s([HOST], [HOST]) == {}
            with suppress(BlockingIOError):
                bound.accept()[0].close()
                return True
            return False

        begun_s = time.monotonic()
        for number in range(4):
            eventually(is_asked, f"question {number}")
        # Not sooner: it may be as late as it likes.
        assert time.monotonic() - begun_s > 1.4
        probes.unanswered_s([HOST], [])
        are_over()


def test_a_host_that_does_not_answer_is_asked_without_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with a_port() as bound:
        probes = known(bound)
        with a_deaf(bound):
            with monkeypatch.context() as patch:
                patch.setattr(host_probes, "_PAUSE_S", 3600.0)
                silent_for(probes, 0.6)
            probes.unanswered_s([HOST], [])
            are_over()


def test_what_is_known_of_a_host_is_forgotten_with_the_wait() -> None:
    """It may have answered in the meantime."""
    now_s = [100.0]
    with a_port() as bound:
        probes = known(bound, lambda: now_s[0])
        with a_deaf(bound):
            eventually(lambda: HOST in probes.unanswered_s([HOST], [HOST]), "silence")
            now_s[0] += 4.0
            are_over()
            now_s[0] += 1.0
            assert probes.unanswered_s([HOST], [HOST]) == {}
            eventually(lambda: HOST in probes.unanswered_s([HOST], [HOST]), "silence")
            assert probes.unanswered_s([HOST], [HOST]) == {HOST: 0.25}
            probes.unanswered_s([HOST], [])
            are_over()


def test_nobody_is_asked_once_nobody_wants_to_know() -> None:
    now_s = [100.0]
    with a_port() as bound:
        probes = known(bound, lambda: now_s[0])
        probes.unanswered_s([HOST], [HOST])
        assert asking()
        now_s[0] += 4.0
        are_over()


def test_a_host_that_has_never_answered_says_nothing() -> None:
    with a_port() as bound, a_deaf(bound):
        probes = known(bound)
        for _ in range(3):
            assert probes.unanswered_s([HOST], [HOST]) == {}
            assert not asking()


@pytest.mark.parametrize("name", ["no-such-host.invalid", "..", "-h", "x" * 300])
def test_a_name_that_nobody_knows_says_nothing(name: str) -> None:
    """They come from other hosts; those that are known are asked all the same."""
    with a_port() as bound:
        probes = HostProbes(bound.getsockname()[1])
        assert probes.unanswered_s([name, HOST], [name]) == {}
        are_over()
        assert probes.unanswered_s([name, HOST], [name]) == {}
        with a_deaf(bound):
            silent_for(probes, 0.3)
            probes.unanswered_s([HOST], [])
            are_over()


def test_nothing_is_left_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with a_port() as bound:
        port = bound.getsockname()[1]
        with a_deaf(bound):
            ask({"a": HOST}, port)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
