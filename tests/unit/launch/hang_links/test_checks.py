"""Leader and others measure links together; what others send does not mislead the leader."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from relkit.hang.links.health import health_of
from relkit.hang.links.model import Health, Suspects
from relkit.launch.hang import codec
from relkit.launch.hang.attempt import WatchedRanks, WatchState
from relkit.launch.hang.follower import FAILURE_PATIENCE_S, WatchFollower
from relkit.launch.hang.links import checks, node_part, notes
from relkit.launch.hang.links.checks import LinkChecks
from relkit.launch.hang.links.notes import Listening
from relkit.launch.hang.observe import Observer
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import LauncherAddress, MemoryMailbox
from relkit.ranks import RankSet
from tests.patience import PATIENCE
from tests.unit.launch.control.test_links import joined
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(120 * PATIENCE)
NUMBER = 0


def suspects(*nodes: int) -> Suspects:
    return Suspects({node: RankSet.of([node]) for node in nodes})


class Launchers:
    """Of some nodes that share a mailbox, each with its own part in checks."""

    def __init__(self, nodes: int, key: bytes = b"k" * 32) -> None:
        self.notes: dict[str, bytes] = {}
        self.logged: list[str] = []
        self.mailboxes = [MemoryMailbox(node, nodes, self.notes) for node in range(nodes)]
        for mailbox in self.mailboxes:
            mailbox.launcher_address = LauncherAddress("127.0.0.1", key)

    def checks(self, node: int, *, is_asked_for: bool = True) -> LinkChecks:
        return LinkChecks(self.mailboxes[node], self.logged.append, is_asked_for=is_asked_for)

    @contextmanager
    def following(self, *parts: Callable[[], object]) -> Iterator[None]:
        """Each of these is called again and again in a thread, as a monitor does."""
        over = threading.Event()

        def run(part: Callable[[], object]) -> None:
            while not over.wait(0.02):
                part()

        threads = [threading.Thread(target=run, args=(part,), daemon=True) for part in parts]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join(30 * PATIENCE)

    def follower(self, node: int, *, is_asked_for: bool = True) -> Callable[[], object]:
        part = self.checks(node, is_asked_for=is_asked_for)
        return lambda: part.follow(NUMBER)

    def answering(self, node: int, key: str, note: bytes) -> Callable[[], object]:
        """A node that says just this once it is asked."""

        def answer() -> None:
            if notes.ask_key(NUMBER) in self.notes:
                self.mailboxes[node].put(key, note)

        return answer


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine gets more time."""
    monkeypatch.setattr(checks, "CHECK_S", checks.CHECK_S * PATIENCE)
    monkeypatch.setattr(node_part, "PROBE_S", node_part.PROBE_S * PATIENCE)


def test_three_nodes_measure_their_links() -> None:
    job = Launchers(4)
    with job.following(*(job.follower(node) for node in (1, 2, 3))):
        check = job.checks(0).lead(NUMBER, suspects(3, 0, 1))
    assert [link.ends for link in check.links] == [(0, 1), (0, 3), (1, 3)]
    assert set(health_of(check.links).values()) == {Health.GOOD}
    assert set(check.names) == {0, 1, 3}
    # They run on one host, and are told apart all the same.
    assert len(set(check.names.values())) == 3
    assert check.problem == ""
    # What was read is gone from the mailbox, and nobody was asked who is no suspect.
    assert {key for key in job.notes if "/at/" in key or "/done/" in key} == set()


def test_a_leader_that_is_none_of_the_suspects_only_asks() -> None:
    job = Launchers(3)
    with job.following(job.follower(1), job.follower(2)):
        check = job.checks(0).lead(NUMBER, suspects(1, 2))
    (link,) = check.links
    assert link.ends == (1, 2)
    assert link.mb_per_s > 0


def test_one_node_has_nothing_to_measure() -> None:
    job = Launchers(2)
    check = job.checks(0).lead(NUMBER, suspects(1))
    assert "one node" in check.problem
    assert check.links == ()
    assert job.notes == {}


def test_silent_nodes_are_not_asked_nor_waited_for() -> None:
    job = Launchers(4)
    with job.following(job.follower(1)):
        check = job.checks(0).lead(NUMBER, suspects(0, 1, 2, 3), silent=(2,))
    assert check.unreachable == (2,)
    # Node 3 was asked, and is mute.
    assert "node 3 did not say" in check.problem
    assert health_of(check.links) == {
        (0, 1): Health.GOOD,
        (0, 3): Health.UNMEASURED,
        (1, 3): Health.UNMEASURED,
    }


def test_without_the_option_a_node_opens_nothing_and_says_so() -> None:
    job = Launchers(2)
    with job.following(job.follower(1, is_asked_for=False)):
        check = job.checks(0).lead(NUMBER, suspects(0, 1))
    assert "took no part: it runs without --on-hang-netcheck" in check.problem
    assert set(health_of(check.links).values()) == {Health.UNMEASURED}


@pytest.mark.parametrize(
    "note", [b"", b"\xff", b"[]", b'{"name": "h1", "address": "x", "ports": {}}']
)
def test_an_odd_place_is_ignored_with_a_line(note: bytes) -> None:
    job = Launchers(3)
    odd = job.answering(2, notes.at_key(NUMBER, 2), note)
    with job.following(job.follower(1), odd):
        check = job.checks(0).lead(NUMBER, suspects(0, 1, 2))
    assert any("node 2 takes no part in measuring links" in line for line in job.logged)
    assert health_of(check.links)[0, 1] is Health.GOOD


def test_odd_results_are_ignored_with_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "LISTEN_S", 1.0)
    job = Launchers(3)
    # Node 2 connects in pairs 0 and 1 of three; it speaks of the one that is not its own, too.
    fake = {str(pair): [0.001, 0.1, "", False] for pair in range(3)}
    place = Listening("h9", "127.0.0.1", {0: 9, 1: 9, 2: 9}).encode()
    with job.following(
        job.follower(1),
        job.answering(2, notes.at_key(NUMBER, 2), place),
        job.answering(2, notes.done_key(NUMBER, 0, 2), json.dumps(fake).encode()),
        job.answering(2, notes.done_key(NUMBER, 1, 2), b"garbage"),
    ):
        check = job.checks(0).lead(NUMBER, suspects(0, 1, 2))
    assert any("speaks of 1 links that are not its own" in line for line in job.logged)
    # What the honest ones measured of each other stays.
    assert next(link for link in check.links if link.ends == (0, 1)).mb_per_s > 1


@pytest.mark.parametrize("note", [b"", b'{"nodes": [0, 1], "nonce": ""}', b'{"nodes": [0, 99]}'])
def test_an_odd_request_is_ignored_with_one_line(note: bytes) -> None:
    job = Launchers(2)
    job.notes[notes.ask_key(NUMBER)] = note
    follow = job.follower(1)
    for _ in range(3):
        follow()
    assert len(job.logged) == 1
    assert "is ignored" in job.logged[0]
    assert set(job.notes) == {notes.ask_key(NUMBER)}


def test_a_follower_of_a_leader_that_says_no_more_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "CHECK_S", 2.0)
    job = Launchers(2)
    job.notes[notes.ask_key(NUMBER)] = notes.Ask((0, 1), bytes(16)).encode()
    job.follower(1)()
    assert notes.at_key(NUMBER, 1) in job.notes


def test_a_check_that_hangs_costs_no_more_than_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checks, "CHECK_S", 1.0)
    released = threading.Event()
    monkeypatch.setattr(checks._Leading, "measure", lambda *_: released.wait(20 * PATIENCE))
    job = Launchers(2)
    check = job.checks(0).lead(NUMBER, suspects(0, 1))
    # It has come back while the measurement still waits for this.
    released.set()
    assert check.problem == "the links were not measured within 1 s"


def test_a_check_that_fails_is_told_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("odd")

    monkeypatch.setattr(checks._Leading, "measure", fail)
    job = Launchers(2)
    check = job.checks(0).lead(NUMBER, suspects(0, 1))
    assert check.links == ()
    assert check.problem == "the links could not be measured: odd"


@pytest.mark.parametrize("is_measuring", [True, False])
def test_a_leader_that_measures_is_not_given_up(is_measuring: bool) -> None:
    job = Launchers(4)
    mailbox = job.mailboxes[1]
    state = WatchState()
    attempt = WatchedRanks(Attempt("job", 4), Observer(None), mailbox, lambda: (), dict)
    follower = WatchFollower(
        attempt, state, checks=job.checks(1), write_dumps=lambda _: None, log=job.logged.append
    )
    job.notes[f"incident/{NUMBER}"] = codec.pack({"job_id": "job", "deadline_s": 1.0})
    follower.follow(0.0, ())
    if is_measuring:
        # Of others than this node, which is not kept busy by it.
        job.notes[notes.ask_key(NUMBER)] = notes.Ask((0, 3), bytes(16)).encode()
    state.failure = "rank 1 died"
    follower.follow(100.0, ())
    assert not follower.is_abandoned(100.0 + FAILURE_PATIENCE_S)
    assert follower.is_abandoned(101.0 + FAILURE_PATIENCE_S) is not is_measuring
    assert follower.is_abandoned(1000.0)


def test_over_real_links_the_successor_leads() -> None:
    job = Launchers(0)
    with joined(4) as launchers:
        for each in launchers:
            eventually(lambda each=each: each.launcher_address, "joined")  # type: ignore[misc]
        points = {each.launcher_address for each in launchers}
        assert len(points) == 1
        launchers[0].close()
        for each in launchers[1:]:
            eventually(lambda each=each: each.leader == 1, "node 1 leads")  # type: ignore[misc]
        parts = {
            each.node: LinkChecks(each, job.logged.append, is_asked_for=True)
            for each in launchers[1:]
        }
        with job.following(lambda: parts[2].follow(NUMBER), lambda: parts[3].follow(NUMBER)):
            check = parts[1].lead(NUMBER, suspects(0, 1, 2, 3))
    assert check.unreachable == (0,)
    assert {link.ends for link in check.links} == {(1, 2), (1, 3), (2, 3)}
    assert set(health_of(check.links).values()) == {Health.GOOD}
