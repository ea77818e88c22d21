"""At the end of a run each service leaves nothing, whatever happens meanwhile."""

from __future__ import annotations

import signal
from argparse import Namespace
from collections.abc import Callable

import pytest
from torch.distributed.elastic.multiprocessing import SignalException

from relkit.errors import RelkitError
from relkit.launch import job_run
from relkit.launch.elastic.setup import AgentSetup
from relkit.launch.job.leaves_job import LeavesJob
from relkit.launch.job.service import Service

ASKED = SignalException("asked to end", signal.SIGTERM)
ASKED_AGAIN = SignalException("asked again", signal.SIGINT)


class Closing(Service):
    """Notes that it is closed, then fails."""

    def __init__(self, closed: list[str], error: Exception | None) -> None:
        self.closed, self.error = closed, error

    def close(self) -> None:
        self.closed.append(type(self.error).__name__)
        if self.error is not None:
            raise self.error


def run_that(monkeypatch: pytest.MonkeyPatch, end: Exception | None) -> Callable[[], int]:
    def torchrun(_options: Namespace) -> None:
        if end is not None:
            raise end

    monkeypatch.setattr(job_run, "record", lambda _torchs: torchrun)
    closed: list[str] = []
    errors = (None, ASKED_AGAIN, OSError("full"), KeyError("x"), RelkitError("gone"), None)
    setup = AgentSetup([Closing(closed, error) for error in errors])

    def run() -> int:
        try:
            return job_run.run_job(Namespace(), setup, lambda _line: None)
        finally:
            # What comes last has its slots in shared memory.
            names = ["NoneType", "SignalException", "OSError", "KeyError", "RelkitError"]
            assert closed == [*names, "NoneType"]

    return run


@pytest.mark.parametrize(("end", "code"), [(ASKED, 143), (None, 0)])
def test_all_are_closed_where_the_launcher_is_asked_again_to_end(
    monkeypatch: pytest.MonkeyPatch, end: Exception | None, code: int
) -> None:
    assert run_that(monkeypatch, end)() == code


def test_what_the_launcher_ends_with_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RelkitError, match="it is slow"):
        run_that(monkeypatch, LeavesJob(RelkitError("it is slow")))()
