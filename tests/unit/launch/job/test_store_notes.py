"""Notes in a store that the test controls: order, completeness, checksums, deadlines."""

from __future__ import annotations

import threading
import zlib
from typing import Any

import pytest

from relkit.launch.job import exchange
from relkit.launch.job.exchange import (
    MemoryMailbox,
    StoreMailbox,
    wait_for_notes,
    wait_for_thread,
)


class Store:
    """torch's store as far as a mailbox asks it; get() of a missing key would wait for ever."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.order: list[str] = []

    def set(self, key: str, value: bytes) -> None:
        self.values[key] = value
        self.order.append(key)

    def get(self, key: str) -> bytes:
        assert key in self.values, f"waits for {key}"
        return self.values[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def delete_key(self, key: str) -> bool:
        return self.values.pop(key, None) is not None


@pytest.fixture
def store() -> Any:  # noqa: ANN401 (stands in for torch's)
    return Store()


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "PART_BYTES", 4)


@pytest.mark.usefixtures("small_parts")
def test_the_note_itself_is_written_after_all_of_its_parts(store: Any) -> None:  # noqa: ANN401
    StoreMailbox(store, 0, 2, "0").put("a", b"0123456789")
    assert store.order == ["relkit/0/a/1", "relkit/0/a/2", "relkit/0/a"]


@pytest.mark.usefixtures("small_parts")
def test_a_note_with_a_missing_part_is_absent(store: Any) -> None:  # noqa: ANN401
    mailbox = StoreMailbox(store, 0, 2, "0")
    mailbox.put("a", b"0123456789")
    part = store.values.pop("relkit/0/a/2")
    assert mailbox.get("a") is None
    store.values["relkit/0/a/2"] = part
    assert mailbox.get("a") == b"0123456789"


@pytest.mark.usefixtures("small_parts")
def test_parts_of_two_notes_do_not_pass_for_one(store: Any) -> None:  # noqa: ANN401
    mailbox = StoreMailbox(store, 0, 2, "0")
    mailbox.put("a", b"0123456789")
    store.values["relkit/0/a/1"] = b"abcd"
    assert mailbox.get("a") is None
    store.values["relkit/0/a"] = b"1 3 %d\nabc" % zlib.crc32(b"abd")
    assert mailbox.get("a") is None
    store.values["relkit/0/a"] = b"1 3 %d\nabc" % zlib.crc32(b"abc")
    assert mailbox.get("a") == b"abc"


def test_attempts_and_other_users_of_the_store_do_not_meet(store: Any) -> None:  # noqa: ANN401
    StoreMailbox(store, 0, 2, "3").put("a", b"x")
    assert list(store.values) == ["relkit/3/a"]
    assert StoreMailbox(store, 1, 2, "4").get("a") is None


def test_a_thread_in_a_store_that_does_not_answer_is_not_waited_for() -> None:
    class Stuck(MemoryMailbox):
        is_stuck = True

    over = threading.Event()
    thread = threading.Thread(target=over.wait, args=(15,), daemon=True)
    thread.start()
    wait_for_thread(thread, Stuck(), 60)
    assert thread.is_alive()
    threading.Timer(0.2, over.set).start()
    wait_for_thread(thread, MemoryMailbox(), 20)
    assert not thread.is_alive()


def test_a_wait_for_notes_says_whether_all_have_come() -> None:
    mailbox = MemoryMailbox(0, 3, {"seen/1": b""})
    assert wait_for_notes(mailbox, ["seen/1"], 0)
    assert not wait_for_notes(mailbox, ["seen/1", "seen/2"], 0.1)
