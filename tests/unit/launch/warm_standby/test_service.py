"""What becomes of standbys while the workers run, fail and are restarted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relkit.launch.job.attempt import Attempt
from relkit.launch.job.service import Stop, WorkerState
from relkit.launch.job.settings import LocalRank
from relkit.launch.warm_standby.service import StandbyService
from tests.unit.launch.elastic.bare import job_of

ATTEMPT = Attempt("job")


class Waiting:
    """Standbys of which so many were killed."""

    is_wanted = True

    def __init__(self, killed: int = 0) -> None:
        self.killed = killed
        self.asked: list[bool] = []
        self.hurried = 0
        self.is_closed = False
        self.watched: dict[int, int] = {}

    def begin(self) -> None:
        pass

    def hurry(self) -> None:
        self.hurried += 1

    def look(self, *, may_start: bool) -> int:
        self.asked.append(may_start)
        return self.killed

    def watch(self, _folder: Path, pids: dict[int, int]) -> None:
        self.watched = pids

    def close(self) -> None:
        self.is_closed = True


def service_of(
    standbys: Waiting, restarts: int, sockets: Path | None = None
) -> tuple[StandbyService, list[int]]:
    """The service, and what it says of kills."""
    discounted: list[int] = []
    folder: Any = SimpleNamespace(path=sockets)
    waiting: Any = standbys
    service = StandbyService(waiting, folder, lambda: True, discounted.append)
    job_of(service, restarts_left=restarts)
    return service, discounted


@pytest.mark.parametrize(("state", "looks"), [("HEALTHY", 1), ("FAILED", 0), ("SUCCEEDED", 0)])
@pytest.mark.parametrize("killed", [0, 2])
def test_a_standby_that_was_killed_is_no_oom_kill_of_a_rank(
    state: str, looks: int, killed: int
) -> None:
    standbys = Waiting(killed)
    service, discounted = service_of(standbys, restarts=1)
    assert service.looked(ATTEMPT, WorkerState[state]) is None
    assert len(standbys.asked) == looks
    assert discounted == [killed] * bool(looks and killed)
    # Once the workers are done, other nodes may take their time.
    assert standbys.is_closed is (state == "SUCCEEDED")


@pytest.mark.parametrize(("restarts", "may_start"), [(0, False), (1, True)])
def test_new_ones_are_for_a_restart_that_is_left(restarts: int, may_start: bool) -> None:
    standbys = Waiting()
    service, _ = service_of(standbys, restarts)
    service.looked(ATTEMPT, WorkerState.HEALTHY)
    assert standbys.asked == [may_start]


@pytest.mark.parametrize(("restarts", "hurried"), [(0, 0), (1, 1)])
def test_a_failure_has_them_hurry_where_there_will_be_a_restart(
    restarts: int, hurried: int
) -> None:
    standbys = Waiting()
    service, _ = service_of(standbys, restarts)
    service.worker_failed(ATTEMPT, "rank 0 was killed")
    assert standbys.hurried == hurried
    service.before_stop(ATTEMPT, Stop.END)
    assert standbys.hurried == hurried
    # Also where another node has failed.
    for stop in (Stop.MEET_AGAIN, Stop.RESTART):
        service.before_stop(ATTEMPT, stop)
    assert standbys.hurried == hurried + 2


@pytest.mark.parametrize(
    ("sockets", "job_dir", "folder"),
    [
        (Path("/s"), Path("/j"), "/j"), (Path("/s"), None, "/s"), (None, None, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_wanted", [True, False])
def test_workers_note_their_imports_where_standbys_are_wanted(
    sockets: Path | None, job_dir: Path | None, folder: str | None, is_wanted: bool
) -> None:
    standbys = Waiting()
    standbys.is_wanted = is_wanted
    service, _ = service_of(standbys, restarts=1, sockets=sockets)
    variables = {"RELKIT_IMPORTS_DIR": folder} if folder and is_wanted else {}
    ranks = (LocalRank(4, 71), LocalRank(5, 72))
    attempt = Attempt("job", job_dir=job_dir, ranks=ranks)
    assert service.environment(attempt) == variables
    service.workers_started(attempt)
    assert standbys.watched == ({0: 71, 1: 72} if folder else {})


def test_only_workers_are_started_from_standbys() -> None:
    import torch.distributed.elastic.multiprocessing.api as processes_api

    before = vars(processes_api)["get_subprocess_handler"]
    service, _ = service_of(Waiting(), restarts=1)
    service.environment(ATTEMPT)
    assert vars(processes_api)["get_subprocess_handler"] is not before
    service.workers_started(ATTEMPT)
    assert vars(processes_api)["get_subprocess_handler"] is before
    # A start that has failed ends the launcher.
    service.environment(ATTEMPT)
    service.close()
    assert vars(processes_api)["get_subprocess_handler"] is before
