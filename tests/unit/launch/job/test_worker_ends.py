"""What the launcher sees of the ends of workers, before torch ends the others."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, PContext, start_processes

from relkit.launch.job.exit_status import peek_exit
from relkit.launch.job.settings import ExitStatus, LocalRank
from relkit.launch.job.worker_ends import (
    ends_now,
    look_first,
    settle,
    worker_files,
)
from tests.ends_late import ends_late
from tests.waiting import eventually


def ends(codes: dict[int, int]) -> dict[int, ExitStatus]:
    return {rank: ExitStatus(code, 5.0) for rank, code in codes.items()}


TORCH_HANDLES = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
PIDS = {0: os.getpid(), 1: os.getpid(), 2: os.getpid()}


def test_others_that_are_asked_to_end_as_well_are_waited_for() -> None:
    statuses = ends({0: -15})
    looks = iter([(1, -15), (2, 7)])

    def look() -> None:
        rank, code = next(looks)
        statuses[rank] = ExitStatus(code)

    # It ends at the code 7: a third look would raise.
    settle(PIDS, lambda: statuses, look, timeout_s=60, max_s=60)
    assert set(statuses) == {0, 1, 2}


@pytest.mark.parametrize("codes", [{}, {0: 0}, {0: 1}, {0: -9, 1: -15}, {0: -15, 1: -15, 2: -15}])
def test_nobody_waits_after_any_other_end_nor_once_all_have_ended(codes: dict[int, int]) -> None:
    settle(PIDS, lambda: ends(codes), lambda: pytest.fail("looked"), timeout_s=60, max_s=60)


def test_who_is_ending_is_waited_for_longer() -> None:
    statuses = ends({0: -15})
    looks = iter([None, None, ExitStatus(-15)])

    def look() -> None:
        if (end := next(looks)) is not None:
            statuses[1] = end

    with ends_late() as pid:
        pids = {0: os.getpid(), 1: pid}
        settle(pids, lambda: statuses, look, timeout_s=0, max_s=60)
        assert set(statuses) == {0, 1}
        # It does not come to its end in time.
        settle(pids, lambda: ends({0: -15}), lambda: None, timeout_s=0, max_s=0.1)


def test_who_is_not_ending_is_not_waited_for_longer() -> None:
    settle(PIDS, lambda: ends({0: -15}), lambda: pytest.fail("looked"), timeout_s=0, max_s=60)


@contextmanager
def torchs_handlers_taken_back() -> Iterator[None]:
    """PContext.start of torch has handlers for some signals."""
    handlers = {number: signal.getsignal(number) for number in TORCH_HANDLES}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def torch_workers(folder: Path, *scripts: str) -> Iterator[PContext]:
    """Workers of torch's, which are shell scripts."""
    args = {rank: ("-c", script) for rank, script in enumerate(scripts)}
    none: dict[int, dict[str, str]] = {rank: {} for rank in args}
    with torchs_handlers_taken_back():
        context = start_processes("worker", "sh", args, none, DefaultLogsSpecs(log_dir=str(folder)))
        try:
            yield context
        finally:
            context.close()


def wait_for_end(pid: int) -> None:
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_torch_does_not_look_before_the_launcher_has_seen_a_failure(tmp_path: Path) -> None:
    # It would end the second worker in the same look.
    seen: dict[int, ExitStatus] = {}
    with torch_workers(tmp_path, "exit 3", "while :; do sleep 1; done") as context:
        look_first(context, lambda: seen)
        pids = context.pids()
        wait_for_end(pids[0])
        assert context.wait(0) is None
        assert peek_exit(pids[1], None) is None
        seen[0] = ExitStatus(3)
        result = context.wait(0)
    assert result is not None
    assert {rank: each.exitcode for rank, each in result.failures.items()} == {0: 3, 1: -15}


def test_torch_looks_once_the_launcher_has_seen_all_of_them_end_well(tmp_path: Path) -> None:
    seen: dict[int, ExitStatus] = {}
    with torch_workers(tmp_path, "true", "true") as context:
        look_first(context, lambda: seen)
        for pid in context.pids().values():
            wait_for_end(pid)
        seen[0] = ExitStatus(0)
        assert context.wait(0) is None
        seen[1] = ExitStatus(0)
        result = context.wait(0)
    assert result is not None
    assert not result.is_failed()


# Python 3.12 and later warn of a fork beside threads; other methods leave a process of their own.
BY_FORK = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def function_workers(folder: Path, function: Callable[[], object]) -> PContext:
    """Two workers that call a function each, as under --run-path."""
    none: dict[int, dict[str, str]] = {0: {}, 1: {}}
    logs = DefaultLogsSpecs(log_dir=str(folder))
    return start_processes("worker", function, {0: (), 1: ()}, none, logs, start_method="fork")


@BY_FORK
def test_functions_that_have_returned_end_once_torch_has_looked(tmp_path: Path) -> None:
    with torchs_handlers_taken_back():
        context = function_workers(tmp_path, int)
        try:
            look_first(context, dict)
            results = iter(lambda: context.wait(0), object())
            eventually(lambda: next(results) is not None, "torch sees what they returned")
        finally:
            context.close()


@BY_FORK
def test_a_function_that_fails_is_not_seen_by_torch_before_the_launcher(tmp_path: Path) -> None:
    seen: dict[int, ExitStatus] = {}
    with torchs_handlers_taken_back():
        context = function_workers(tmp_path, fails)
        try:
            look_first(context, lambda: seen)
            for pid in context.pids().values():
                wait_for_end(pid)
            assert context.wait(0) is None
            seen[1] = ExitStatus(1)
            result = context.wait(0)
        finally:
            context.close()
    assert result is not None
    assert result.is_failed()


def fails() -> None:
    raise SystemExit(3)


def test_torch_may_look_where_somebody_else_has_reaped_a_worker(tmp_path: Path) -> None:
    with torch_workers(tmp_path, "exit 3", "while :; do sleep 1; done") as context:
        look_first(context, lambda: {0: ExitStatus(0)})
        os.waitpid(context.pids()[0], 0)
        assert context.wait(0) is None  # torch takes it for one that has ended well
        os.kill(context.pids()[1], signal.SIGKILL)
        wait_for_end(context.pids()[1])
        result = context.wait(0)
    assert result is not None
    assert result.is_failed()


def test_before_there_are_workers_nothing_is_looked_at() -> None:
    look_first(None, lambda: pytest.fail("looked"))


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
