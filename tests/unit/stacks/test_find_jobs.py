"""A job's ranks: by relkit's recorders while they live, else by the environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relkit.errors import NoSuchProcess, UsageProblem
from relkit.process import procfs
from relkit.stacks.dump import find_jobs as module
from relkit.stacks.dump.find_jobs import find_job, find_jobs
from relkit.stacks.dump.process_table import DENIED, Seen
from relkit.stacks.engines.base import Target

_ENVIRON = {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "my run/7"}
_PID = os.getppid()


def _target(pid: int, ticks: int) -> Target:
    return Target(pid, 0, 1, "host0", "my-run", Path("my-run/1.rkhook"), ticks)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Target]:
    """What recorders say; nothing unless a test adds to it."""
    targets: list[Target] = []

    def of_job(job_id: str) -> tuple[Target, ...]:
        if "/" in job_id:
            raise UsageProblem(f"{job_id} is no name")
        if not targets:
            raise NoSuchProcess(f"no rank of {job_id}")
        return tuple(targets)

    monkeypatch.setattr(module, "targets_of_job", of_job)
    monkeypatch.setattr(module, "all_job_folders", lambda: [Path("my-run")] if targets else [])
    return targets


def _here(monkeypatch: pytest.MonkeyPatch, *processes: Seen) -> None:
    monkeypatch.setattr(module, "look", lambda _: processes)


def _rank(pid: int = _PID) -> Seen:
    return Seen(pid, 1, procfs.start_ticks(pid), 0, "python", "python3", True, (), _ENVIRON, "n")


def test_recorders_of_ranks_that_live_are_enough(
    monkeypatch: pytest.MonkeyPatch, recorded: list[Target]
) -> None:
    recorded.append(_target(_PID, procfs.start_ticks(_PID)))
    _here(monkeypatch)
    (job,) = find_job("my-run", 1.0).jobs
    assert (job.how, job.targets[0].pid) == ("relkit's recorders", _PID)
    (job,) = find_jobs(1.0).jobs
    assert job.targets[0].pid == _PID


def test_recorders_of_an_earlier_run_give_way_to_ranks_that_live(
    monkeypatch: pytest.MonkeyPatch, recorded: list[Target]
) -> None:
    recorded.append(_target(2**22 + 1, 5))
    _here(monkeypatch, _rank())
    assert find_job("my_run_7", 1.0).jobs[0].targets[0].pid == _PID
    assert [job.name for job in find_jobs(1.0).jobs] == ["my_run_7"]
    # Where nobody lives, the recorders of the dead are all there is.
    assert find_job("my-run", 1.0).jobs[0].targets[0].pid == 2**22 + 1


@pytest.mark.parametrize("name", ["my_run_7", "my run/7"])
def test_a_job_may_be_asked_for_as_torchrun_was_told(
    name: str, monkeypatch: pytest.MonkeyPatch, recorded: list[Target]
) -> None:
    _here(monkeypatch, _rank())
    (job,) = find_job(name, 1.0).jobs
    assert job.name == "my_run_7"


@pytest.mark.parametrize("job_id", ["", "x"])
def test_who_could_not_be_looked_at_is_said_where_nothing_is_there(
    job_id: str, monkeypatch: pytest.MonkeyPatch, recorded: list[Target]
) -> None:
    _here(monkeypatch, Seen(77, 1, 5, 1000, "python3\x1b[2J", problem=DENIED))
    with pytest.raises(NoSuchProcess, match="of user 1000: pid 77 python3") as none:
        find_job(job_id, 1.0) if job_id else find_jobs(1.0)
    assert "\x1b" not in str(none.value)
    assert "Run it as that user, or as root." in none.value.next_step


def test_what_can_be_no_name_is_said(
    monkeypatch: pytest.MonkeyPatch, recorded: list[Target]
) -> None:
    _here(monkeypatch)
    with pytest.raises(UsageProblem):
        find_job("../etc", 1.0)
