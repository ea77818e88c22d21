"""A node's part in rounds of copies, where node 0 says what cannot be."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from relkit.flash_checkpoint.replicas.copy_folder import CopyFolder
from relkit.launch.job.exchange import MemoryMailbox
from relkit.launch.replicas.rounds import Rounds, Task
from relkit.launch.replicas.wire import RateLimit
from tests.unit.launch.replicas.test_exchange import ROUND, SECRET, WORLD, folder_of
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(60)


@contextmanager
def follower(folder: Path, notes: dict[str, bytes]) -> Iterator[CopyFolder]:
    """Node 1, whose rank 1 has step 3; it keeps its copies to itself."""
    slots = folder_of(folder / "job", 1, 3)
    copies = CopyFolder(slots.folder, WORLD)
    task = Task(MemoryMailbox(1, WORLD, notes), WORLD, SECRET, (), RateLimit(0.0))
    rounds = Rounds(task, slots, copies, "", threading.Event(), lambda _line: None)
    try:
        yield copies
    finally:
        rounds.close()


def round_note(**changes: object) -> bytes:
    plain = {"step": 3, "round": ROUND, "keep": "", "period_s": 0.1, **changes}
    return json.dumps(plain).encode()


def answer(notes: dict[str, bytes], number: int) -> str:
    key = f"done/{number}/1"
    eventually(lambda: key in notes, "node 1's answer")
    return str(json.loads(notes[key])["why"])


@pytest.mark.parametrize(
    "changes",
    [
        {"step": float("inf")}, {"step": "x"}, {"period_s": "x"}, {"round": None},
        {"round": "../../x"}, {"round": "ab"},
    ],
)  # fmt: skip
def test_a_round_that_cannot_be_is_refused_and_the_next_is_copied(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    notes = {"round/1": round_note(**changes), "round/2": round_note()}
    with follower(tmp_path, notes) as copies:
        assert answer(notes, 1)
        assert answer(notes, 2) == ""
        assert [path.name for path in copies.path.iterdir()] == [f"rank-1.{ROUND}.copy"]
