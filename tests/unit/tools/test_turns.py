"""Two runs of the tests on one host take turns where speed is judged."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from tools.run_tests import turns


@pytest.fixture(autouse=True)
def _name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock of this test's own: a real run may hold the host's."""
    own = f"{turns.lock_name()}-test-{os.getpid()}"
    monkeypatch.setattr(turns, "lock_name", lambda: own)


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


_HOLD = r"""
import sys
from tools.run_tests import turns
turns.lock_name = lambda: "\0" + sys.argv[1]
with turns.turn(print):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_run_in_namespaces_of_its_own_has_the_same_lock_and_its_end_frees_it() -> None:
    # As tools/fresh_check has them, which root alone may make.
    own = ("unshare", "--mount", "--pid", "--fork", "--kill-child") if os.geteuid() == 0 else ()
    said: list[str] = []
    with subprocess.Popen(
        [*own, sys.executable, "-c", _HOLD, turns.lock_name().removeprefix("\0")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with turns.turn(said.append, wait_s=0):
            assert said[-1] == "going on beside them after 0 s"
        holder.kill()
    said.clear()
    with turns.turn(said.append, wait_s=60):
        assert "going on beside them after 60 s" not in said
