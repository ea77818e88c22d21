"""A look that fails is said once in a while, and what ends a job on purpose goes through."""

from __future__ import annotations

import errno
import os

import pytest

from relkit.errors import UnwritablePath
from relkit.launch.job.looks import Looks
from relkit.launch.job.settings import JobAborted
from relkit.process.shortage import is_shortage


def fail_with(error: Exception) -> int:
    raise error


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
        UnwritablePath("cannot write"),
        RuntimeError("can't start new thread"),
        ImportError("cannot open shared object file"),
        MemoryError(),
    ],
)
def test_what_a_host_may_refuse_is_nothing_to_the_job(error: Exception) -> None:
    said: list[str] = []
    now_s = 0.0
    looks = Looks(said.append, lambda: now_s)
    assert looks.take("a look", lambda: fail_with(error), 7) == 7
    assert looks.take("a look", lambda: fail_with(error), 7) == 7
    assert len(said) == 1
    assert said[0].startswith("a look failed, which is nothing to the job: ")
    assert looks.take("a look", lambda: 8, 7) == 8
    now_s = 600.0
    looks.take("a look", lambda: fail_with(error), 7)
    assert len(said) == 2


@pytest.mark.parametrize("error", [JobAborted("it hung"), AssertionError("a bug"), KeyError("x")])
def test_all_else_goes_through(error: Exception) -> None:
    looks = Looks(lambda _: None)
    with pytest.raises(type(error)):
        looks.take("a look", lambda: fail_with(error), 7)


def test_a_shortage_is_known_behind_another_error() -> None:
    full, gone = OSError(errno.ENFILE, "full"), FileNotFoundError(errno.ENOENT, "gone")
    behind = UnwritablePath("cannot write")
    behind.__cause__ = full
    assert is_shortage(full)
    assert is_shortage(behind)
    assert not is_shortage(gone)
    assert not is_shortage(None)
