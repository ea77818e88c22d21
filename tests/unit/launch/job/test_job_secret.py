"""What launchers believe of a store that anybody can write to."""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest
from torch._C._distributed_c10d import HashStore, Store
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend, Token

from relkit.errors import EXIT_USAGE
from relkit.launch.job.exchange import MemoryMailbox
from relkit.launch.job.sealed_mailbox import SealedMailbox
from relkit.launch.job.sealed_rendezvous import ForeignState, seal
from relkit.launch.job.session_key import SecretMismatch, _open, _seal, agree
from relkit.launch.job.settings import Log

KEY = bytes(range(32))
OTHER = bytes(range(1, 33))


@dataclass
class Two:
    """Two ends of one mailbox, and the store under it."""

    notes: dict[str, bytes] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def end(self, node: int, key: bytes = KEY) -> SealedMailbox:
        return SealedMailbox(MemoryMailbox(node, 2, self.notes), key, self.said.append)


def test_what_one_launcher_writes_the_other_reads() -> None:
    two = Two()
    first, second = two.end(0), two.end(1)
    assert (second.node, second.nodes) == (1, 2)
    assert second.get("a") is None
    for data in (b"one", b"", bytes(range(256))):
        first.put("a", data)
        assert second.get("a") == data
        assert second.get("a") == data
    second.remove("a")
    assert second.get("a") is None
    assert two.said == []


def test_what_somebody_else_writes_is_absent_and_logged_once() -> None:
    two = Two()
    first, second = two.end(0), two.end(1)
    first.put("a", b"good")
    good = two.notes["a"]
    for bad in (b"x", b"forged " * 20, good[:-1], good + b"x", bytes([good[0] ^ 1]) + good[1:]):
        two.notes["a"] = bad
        assert second.get("a") is None
    # Under another name the same note says something else.
    two.notes["b"] = good
    assert second.get("b") is None
    two.end(0, OTHER).put("a", b"of another job")
    assert second.get("a") is None
    assert len(two.said) == 1
    assert "somebody else can write to the store" in two.said[0]
    two.notes["a"] = good
    assert second.get("a") == b"good"


def test_an_older_note_does_not_come_back() -> None:
    two = Two()
    first, second = two.end(0), two.end(1)
    first.put("a", b"all is well")
    old = two.notes["a"]
    first.put("a", b"rank 3 has failed")
    assert second.get("a") == b"rank 3 has failed"
    two.notes["a"] = old
    assert second.get("a") is None


def test_a_note_that_was_read_and_removed_does_not_come_back() -> None:
    two = Two()
    first, second = two.end(0), two.end(1)
    first.put("a", b"one")
    old = two.notes["a"]
    assert second.get("a") == b"one"
    second.remove("a")
    two.notes["a"] = old
    assert second.get("a") is None
    first.put("a", b"two")
    assert second.get("a") == b"two"


def agree_all(
    keys: list[bytes], notes: dict[str, bytes] | None = None
) -> list[bytes | SecretMismatch]:
    """What each node makes of it."""
    notes = {} if notes is None else notes
    found: dict[int, bytes | SecretMismatch] = {}

    def node(number: int) -> None:
        try:
            mailbox = MemoryMailbox(number, len(keys), notes)
            found[number] = agree(mailbox, keys[number], 20)
        except SecretMismatch as error:
            found[number] = error

    threads = [threading.Thread(target=node, args=(number,)) for number in range(len(keys))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not any(KEY.hex().encode() in note or KEY in note for note in notes.values())
    return [found[number] for number in range(len(keys))]


def test_nodes_with_one_secret_have_one_key_and_a_new_one_each_time() -> None:
    first, again = agree_all([KEY] * 3), agree_all([KEY] * 3)
    assert len(set(map(bytes, first))) == 1  # type: ignore[arg-type]
    assert len(bytes(first[0])) == 32  # type: ignore[arg-type]
    assert first != again


def test_notes_of_an_earlier_rendezvous_bring_no_old_key_back() -> None:
    class PutBack(MemoryMailbox):
        """Whoever has the store puts the old notes back at once."""

        def put(self, key: str, data: bytes) -> None:
            pass

    notes: dict[str, bytes] = {}
    (key, _) = agree_all([KEY] * 2, notes)
    assert agree(PutBack(0, 2, notes), KEY, 20) not in (key, b"")
    with pytest.raises(SecretMismatch, match="node 0 sent no proof"):
        agree(PutBack(1, 2, {**notes, "read/0": b"1"}), KEY, 0.1)


def test_the_proof_of_one_node_is_none_of_another() -> None:
    notes: dict[str, bytes] = {}
    hello = _seal(KEY, "hello 1", {"nonce": "n"})
    assert _open(KEY, "hello 1", hello) == ({"nonce": "n"}, "")
    notes["hello/1"] = notes["hello/2"] = hello
    with pytest.raises(SecretMismatch, match="node 2 has another secret, unlike node 0"):
        agree(MemoryMailbox(0, 3, notes), KEY, 5, holds_store=False)


def test_without_a_secret_there_is_no_key() -> None:
    assert agree_all([b""] * 3) == [b""] * 3
    assert agree(MemoryMailbox(), b"") == b""
    assert len(agree(MemoryMailbox(), KEY)) == 32


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ([KEY, OTHER], ["node 1 has another secret", "node 0 has another secret"]),
        ([KEY, b""], ["node 1 has no secret", "node 0 has a secret"]),
        ([b"", KEY], ["node 1 has a secret", "node 0 has no secret"]),
        (
            [KEY, KEY, OTHER],
            ["node 2 has another secret", "node 2 has another", "node 0 has another"],
        ),
        ([b"", b"", KEY], ["node 2 has a secret", "node 2 has a secret", "node 0 has no secret"]),
    ],
    ids=["another", "missing-on-1", "missing-on-0", "third", "third-alone"],
)
def test_every_node_is_told_what_does_not_fit(keys: list[bytes], words: list[str]) -> None:
    for found, expected in zip(agree_all(keys), words, strict=True):
        assert isinstance(found, SecretMismatch)
        assert expected in str(found)
        assert "--secret-file" in found.next_step
        assert found.exit_code == EXIT_USAGE


def test_a_node_that_never_comes_is_named() -> None:
    with pytest.raises(SecretMismatch, match=r"node 1 sent no proof of the secret for 0\.1 s"):
        agree(MemoryMailbox(0, 2, {"read/1": b"1"}), KEY, 0.1)
    assert agree(MemoryMailbox(0, 2), b"", 0.1) == b""
    with pytest.raises(SecretMismatch, match="node 0 sent no proof"):
        agree(MemoryMailbox(1, 2, {"read/0": b"1"}), KEY, 0.1)


@pytest.mark.parametrize("note", [b"", b"x", b"[]", b"{}", b'{"body": "[]", "proof": ""}', b"\xff"])
def test_what_is_no_proof_at_all(note: bytes) -> None:
    notes = {"session": note, "read/0": b"1"}
    with pytest.raises(SecretMismatch, match="something else than a proof"):
        agree(MemoryMailbox(1, 2, notes), KEY, 5)


class Backend(RendezvousBackend):
    """torch's backend, without a store."""

    def __init__(self, store: Store | None = None) -> None:
        self.state: bytes | None = None
        self._store = store

    @property
    def name(self) -> str:
        return "memory"

    def get_state(self) -> tuple[bytes, Token] | None:
        return None if self.state is None else (self.state, len(self.state))

    def set_state(
        self, state: bytes, token: Token | None = None
    ) -> tuple[bytes, Token, bool] | None:
        self.state = state
        return state, len(state), True


class Handler:
    """As much of torch's handler as is sealed."""

    def __init__(self, backend: Backend) -> None:
        class Holder:
            _backend: Any = backend

        self._state_holder = Holder()

    def get_run_id(self) -> str:
        return "job"

    def get_backend(self) -> str:
        return "c10d"


def sealed(
    backend: Backend, key: bytes, log: Log = lambda _: None, node: str = "h1"
) -> RendezvousBackend:
    handler: Any = Handler(backend)
    seal(handler, key, log, node)
    found: RendezvousBackend = handler._state_holder._backend
    return found


def test_a_state_goes_from_launcher_to_launcher() -> None:
    backend = Backend()
    assert sealed(backend, KEY).get_state() is None
    assert sealed(backend, KEY).set_state(b"state") is not None
    found = sealed(backend, KEY).get_state()
    assert found is not None
    assert found[0] == b"state"
    plain = Backend()
    sealed(plain, b"").set_state(b"state")
    assert plain.state == b"state"


def test_a_state_of_somebody_else_is_not_handed_to_torch() -> None:
    backend = Backend()
    backend.state = pickle.dumps("anything")
    with pytest.raises(ForeignState, match=r"has no secret, unlike this node \(.*\), or somebody"):
        sealed(backend, KEY).get_state()
    sealed(backend, OTHER).set_state(b"state")
    with pytest.raises(ForeignState, match="another secret"):
        sealed(backend, KEY).get_state()
    with pytest.raises(ForeignState, match="another node has a secret, unlike this node"):
        sealed(backend, b"").get_state()


@pytest.mark.parametrize(
    ("holder_key", "joining_key", "joining", "waiting"),
    [
        (KEY, OTHER, "another secret than", "another secret than"),
        (KEY, b"", "a secret, unlike", "no secret, unlike"),
        (b"", KEY, "no secret, unlike", "a secret, unlike"),
    ],
    ids=["another", "none", "only"],
)
def test_both_sides_learn_once_which_node_differs(
    monkeypatch: pytest.MonkeyPatch, holder_key: bytes, joining_key: bytes, joining: str,
    waiting: str,
) -> None:  # fmt: skip
    monkeypatch.setattr("relkit.launch.job.mismatch_notes._LOOK_S", 0.0)
    backend, log = Backend(HashStore()), list[str]()

    def at(node: str, key: bytes) -> RendezvousBackend:
        return sealed(backend, key, log.append, node)

    holder = at("h1", holder_key)
    holder.get_state()
    holder.set_state(b"state")
    joiner = at("h2", joining_key)
    # torch asks several times.
    for _ in range(3):
        with pytest.raises(ForeignState, match=rf"node h1 has {joining} this node \(h2\)"):
            joiner.get_state()
    assert log == []
    for _ in range(3):
        holder.get_state()
    assert log == [
        f"node h2 could not join the job: it has {waiting} this node (h1)."
        f" {SecretMismatch.next_step}"
    ]
    # With the right secret it is not told of its own first attempt.
    later = at("h2", holder_key)
    for _ in range(2):
        later.get_state()
    assert len(log) == 1
    # The name of this node may be in the way of another's that wrote later.
    with pytest.raises(ForeignState, match="another node has"):
        at("h1", joining_key).get_state()


def test_notes_that_somebody_else_left_make_no_line_that_is_not_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("relkit.launch.job.mismatch_notes._LOOK_S", 0.0)
    store, log = HashStore(), list[str]()
    holder = sealed(Backend(store), KEY, log.append)
    holder.get_state()
    for number, note in enumerate(["", "another", "x h2", "\x1b[31m h2", "none \x1b[31mh2"], 1):
        store.set(f"relkit/secret-mismatch/job/{number}", note)
    holder.get_state()
    assert [line.partition(" this node")[0] for line in log] == [
        "node ? could not join the job: it has another secret than",
        "node ? could not join the job: it has no secret, unlike",
    ]
    for number in range(6, 100):
        store.set(f"relkit/secret-mismatch/job/{number}", f"none h{number}")
    holder.get_state()
    assert len(log) == 8


def test_a_store_that_does_not_answer_is_seen_through_the_seal() -> None:
    class Stuck(MemoryMailbox):
        is_stuck = True

    assert SealedMailbox(Stuck(0, 2), KEY, print).is_stuck
    assert not SealedMailbox(MemoryMailbox(0, 2), KEY, print).is_stuck
