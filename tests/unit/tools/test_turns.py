"""Two runs of the tests on one host take turns where speed is judged."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tools.run_tests import turns


@pytest.fixture(autouse=True)
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock of this test's own: a real run may hold the host's."""
    path = tmp_path / "lock"
    monkeypatch.setattr(turns, "lock_file", lambda: path)
    return path


def test_the_second_waits_until_the_first_has_done() -> None:
    told = threading.Event()
    done: list[str] = []

    def second() -> None:
        with turns.turn(lambda _text: told.set()):
            done.append("second")

    other = threading.Thread(target=second)
    with turns.turn(lambda _text: pytest.fail("nobody has it")):
        other.start()
        assert told.wait(30)
        done.append("first")
    other.join(30)
    assert done == ["first", "second"]


def test_who_has_waited_long_enough_goes_on() -> None:
    said: list[str] = []
    with turns.turn(said.append), turns.turn(said.append, wait_s=0.1):
        assert said == [
            "waiting for the tests of another checkout to judge speed",
            "going on beside them after 0.1 s",
        ]


def test_a_link_in_its_place_is_not_followed(lock: Path, tmp_path: Path) -> None:
    lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"), turns.turn(print):
        pass
    assert not (tmp_path / "elsewhere").exists()
