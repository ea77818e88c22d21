"""Which rank a process is that somebody names by its pid."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from relkit.process import procfs
from relkit.stacks.dump import targets


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [(None, (1, 2)), (-1, (1, 2)), (0, (0, 4))],
    ids=["no recorder", "a recorder without a rank", "a recorder"],
)
def test_a_recorder_knows_better_than_the_environment_of_the_start(
    monkeypatch: pytest.MonkeyPatch, recorded: int | None, expected: tuple[int, int]
) -> None:
    """A warm standby was started with the environment of the worker before it."""
    path = Path("job-7/1.rkhook")
    recorder = None if recorded is None else (path, SimpleNamespace(rank=recorded, world_size=4))
    monkeypatch.setattr(procfs, "rank_environment", lambda _: {"RANK": "1", "WORLD_SIZE": "2"})
    monkeypatch.setattr(targets, "recorder_of", lambda _: recorder)
    (target,) = targets.targets_of_pids([os.getpid()])
    assert (target.rank, target.world_size) == expected
    assert target.hook_file == (path if recorder else None)


def test_a_standby_that_waits_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the command and the environment of a worker, and `pgrep -f` lists both."""
    worker, standby = os.getpid(), os.getppid()
    monkeypatch.setattr(procfs, "rank_environment", lambda _: {"RANK": "1", "WORLD_SIZE": "2"})
    monkeypatch.setattr(procfs, "is_standby", lambda pid: pid == standby)
    (target,) = targets.targets_of_pids([standby, worker])
    assert (target.pid, target.rank, target.world_size) == (worker, 1, 2)
    assert [each.pid for each in targets.targets_of_pids([standby])] == [standby]
