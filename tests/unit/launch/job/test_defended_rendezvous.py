"""What somebody does to the rendezvous of a job that runs is undone, where there is a secret."""

from __future__ import annotations

import operator
import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from torch._C._distributed_c10d import HashStore, Store, TCPStore
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousBackend,
    Token,
    _RendezvousState,
)

from relkit.launch.job.mismatch_notes import MismatchNotes
from relkit.launch.job.sealed_rendezvous import SealedBackend, seal
from tests.unit.launch.job.rendezvous_nodes import LIMIT, handlers, meet

KEY = bytes(range(32))
OTHER = bytes(range(1, 33))
# Where torch keeps the state.
STATE = "torch.rendezvous.a job"


def text_of(state: bytes) -> str:
    return b64encode(state).decode()


@dataclass
class Job:
    """Two nodes that have met, and somebody else at their store.

    Args:
        nodes: of torch; backends: of each; lines: logged; intruder: the store.
        old: the state as it was some time ago, as it is in the store.
    """

    nodes: list[DynamicRendezvousHandler]
    backends: list[SealedBackend]
    lines: list[list[str]]
    intruder: Store
    old: bytes = b""

    def write(self, node: int) -> bool:
        """Have torch write the state again."""
        holder: Any = self.nodes[node]._state_holder
        holder.mark_dirty()
        return bool(holder.sync())

    def numbers(self) -> list[int]:
        """Of the state that each node knows of; it never becomes less."""
        return [backend._held.number for backend in self.backends if backend._held]

    def assert_is_whole(self) -> None:
        for node in self.nodes:
            assert node.num_nodes_waiting() == 0
            assert not node.is_closed()
            assert len(node._state_holder.state.participants) == 2
        held = [backend._held.sealed for backend in self.backends if backend._held]
        assert b64decode(self.intruder.get(STATE)) in held


def running_job() -> Iterator[Job]:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    nodes = handlers(server.port, 2)
    lines: list[list[str]] = [[], []]
    backends = [
        seal(node, KEY, line.append, f"h{number}")
        for number, (node, line) in enumerate(zip(nodes, lines, strict=True))
    ]
    job = Job(
        nodes, [backend for backend in backends if backend], lines,
        TCPStore("127.0.0.1", server.port, timeout=LIMIT),
    )  # fmt: skip
    try:
        assert meet(nodes) == {(0, 2), (1, 2)}
        for node, backend in zip(nodes, job.backends, strict=True):
            node._stop_heartbeats()
            node._state_holder._cache_duration = 0  # type: ignore[attr-defined]
            backend.hold()
        job.old = job.intruder.get(STATE)
        for number in (0, 1):
            while not job.write(number):
                pass
        job.assert_is_whole()
        yield job
    finally:
        for node in nodes:
            node._stop_heartbeats()


@pytest.fixture(scope="module")
def job() -> Iterator[Job]:
    yield from running_job()


def write_plain(job: Job) -> None:
    job.intruder.set(STATE, text_of(pickle.dumps(_RendezvousState())))


def write_closed(job: Job) -> None:
    state = _RendezvousState()
    state.closed = True
    write_sealed(job, OTHER, state)


def write_of_another_run(job: Job) -> None:
    state = _RendezvousState()
    state.closed = True
    write_sealed(job, KEY, state)


def write_sealed(job: Job, key: bytes, state: _RendezvousState) -> None:
    """Copy what launchers with this key have in another store."""
    store = HashStore()
    notes = MismatchNotes(None, "a job", print, "h3")
    backend = SealedBackend(C10dRendezvousBackend(store, "a job"), key, notes, print)
    token: Token = None
    # It is far ahead of this job's.
    for _ in range(100):
        written = backend.set_state(pickle.dumps(state), token)
        assert written is not None
        assert written[2]
        token = written[1]
    job.intruder.set(STATE, store.get(STATE).decode())


WAYS: list[tuple[str, Callable[[Job], object]]] = [
    ("no-base64", lambda job: job.intruder.set(STATE, "?")),
    ("no-text", lambda job: job.intruder.set(STATE, b"\xff")),  # type: ignore[arg-type]
    ("nothing-in-it", lambda job: job.intruder.set(STATE, "")),
    ("as-before-the-start", lambda job: job.intruder.set(STATE, "Y2FuaW1hZGFt")),
    ("no-proof", write_plain),
    ("another-secret", write_closed),
    ("another-run", write_of_another_run),
    ("older", lambda job: job.intruder.set(STATE, job.old.decode())),
    ("removed", lambda job: job.intruder.delete_key(STATE)),
]


@pytest.mark.parametrize("attack", [way for _, way in WAYS], ids=[name for name, _ in WAYS])
def test_the_state_is_put_back(job: Job, attack: Callable[[Job], object]) -> None:
    before = job.numbers()
    attack(job)
    job.assert_is_whole()
    assert all(map(operator.ge, job.numbers(), before))
    # The same where a node writes next.
    attack(job)
    assert any([job.write(1), job.write(1)])
    job.assert_is_whole()
    assert all(map(operator.gt, job.numbers(), before))


def test_the_nodes_meet_again_and_one_line_says_what_was_done() -> None:
    for job in running_job():
        for _ in range(2):
            job.intruder.delete_key(STATE)
            job.nodes[0].num_nodes_waiting()
        assert meet(job.nodes) == {(0, 2), (1, 2)}
        (line,) = job.lines[0]
        assert "overwritten or removed by somebody else, and is put back" in line
        assert job.lines[1] == []


def test_torch_gets_the_held_state_while_somebody_overwrites_it_each_time() -> None:
    class Overwritten(RendezvousBackend):
        """A store in which another always writes last."""

        state: bytes | None = None
        intruder: bytes | None = None
        name = "memory"

        def get_state(self) -> tuple[bytes, Token] | None:
            found = self.intruder or self.state
            return None if found is None else (found, found)

        def set_state(
            self, state: bytes, token: Token | None = None
        ) -> tuple[bytes, Token, bool] | None:
            self.state = state
            found = self.intruder or state
            return found, found, found == state

    inner, lines = Overwritten(), list[str]()
    backend = SealedBackend(inner, KEY, MismatchNotes(None, "a job", print, "h1"), lines.append)
    assert backend.set_state(b"state") is not None
    backend.hold()
    inner.intruder = b"forged"
    for _ in range(2):
        found = backend.get_state()
        assert found is not None
        assert found[0] == b"state"
        written = backend.set_state(b"newer", found[1])
        assert written is not None
        assert (written[0], written[2]) == (b"state", False)
    assert len(lines) == 1
    inner.intruder = None
    found = backend.get_state()
    assert found is not None
    written = backend.set_state(b"newer", found[1])
    assert written is not None
    assert (written[0], written[2]) == (b"newer", True)


def test_a_count_that_is_no_number_costs_no_connection() -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    (node, _) = handlers(server.port, 2)
    server.set("relkit/secret-mismatch/a job/count", "many")
    backend = seal(node, KEY, print, "h1")
    assert backend is not None
    assert backend.get_state() is None
    assert backend.get_state() is None
