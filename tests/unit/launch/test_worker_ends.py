"""Which workers failed by themselves, of those that a look of torch's finds ended."""

from __future__ import annotations

import os
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from relkit.launch.job.settings import ExitStatus, LocalRank
from relkit.launch.job.worker_ends import (
    ends_now,
    first_failure,
    settle,
    with_doing,
    worker_files,
)


def ends(codes: dict[int, int]) -> dict[int, ExitStatus]:
    return {rank: ExitStatus(code, 5.0) for rank, code in codes.items()}


@pytest.mark.parametrize(
    ("codes", "first"),
    [
        ({2: -9, 0: -15, 1: -15, 3: -15}, 2),
        ({0: -15, 1: -15, 2: -9}, 2),
        ({0: -15, 3: 1, 1: -9}, 3),
        ({1: -15, 0: -15}, 1),
        ({0: -9, 1: -9}, 0),
    ],
)
def test_what_torch_ended_itself_is_never_first(codes: dict[int, int], first: int) -> None:
    assert first_failure(ends(codes)) == first
    by_launcher = {r for r, end in with_doing(ends(codes), first).items() if end.by_launcher}
    assert by_launcher == {r for r, code in codes.items() if r != first and code == -15}


def test_others_that_are_asked_to_end_as_well_are_waited_for() -> None:
    statuses = ends({0: -15})
    looks = iter([(1, -15), (2, 7)])

    def look() -> None:
        rank, code = next(looks)
        statuses[rank] = ExitStatus(code)

    # It ends at the code 7: a third look would raise.
    settle(lambda: statuses, look, timeout_s=60)
    assert set(statuses) == {0, 1, 2}


@pytest.mark.parametrize("codes", [{}, {0: 0}, {0: 1}, {0: -9, 1: -15}])
def test_nobody_waits_after_any_other_end(codes: dict[int, int]) -> None:
    settle(lambda: ends(codes), lambda: pytest.fail("looked"), timeout_s=60)


def test_who_has_ended_since_the_launcher_looked() -> None:
    lives, fails, reaped = (
        subprocess.Popen(argv, stdin=subprocess.PIPE) for argv in (["cat"], ["false"], ["true"])
    )
    try:
        reaped.wait()
        os.waitid(os.P_PID, fails.pid, os.WEXITED | os.WNOWAIT)
        ranks = [LocalRank(rank, each.pid) for rank, each in enumerate((lives, fails, reaped))]
        polled = {3: ExitStatus(-9)}
        now = ends_now(polled, [*ranks, LocalRank(3, fails.pid)], lambda _r, c: ExitStatus(c, 5.0))
        # One that somebody else has reaped may have ended in any way.
        assert now == {3: ExitStatus(-9), 1: ExitStatus(1, 5.0)}
        assert fails.wait() == 1
    finally:
        for each in (lives, fails, reaped):
            each.communicate()


def test_the_files_of_workers_by_rank() -> None:
    context: Any = SimpleNamespace(stderrs={0: "/log/0", 1: ""}, error_files={0: "/err/0"})
    workers: Any = [SimpleNamespace(local_rank=i, global_rank=4 + i) for i in range(2)]
    files = worker_files(context, workers)
    assert str(files[4].stderr) == "/log/0"
    assert str(files[4].errors) == "/err/0"
    assert files[5].stderr is None
    assert worker_files(None, workers) == {}
