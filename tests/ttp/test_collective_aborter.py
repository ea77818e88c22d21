"""Ranks that wait in gloo for a peer that will never answer are freed, with the hook and without.

The peer is stopped, not dead: nothing else would ever wake the others.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from torch._C._distributed_c10d import TCPStore

from relkit.hook.environment import prepare_job_dir, remove_job_dir, worker_environment
from relkit.process import procfs
from tests.eager import eager

pytestmark = [pytest.mark.timeout(120)]
RANK = Path(__file__).parent / "jobs" / "abort_rank.py"
SIZE = 3


@contextmanager
def process(arguments: list[str], environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, str(RANK), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=eager({**os.environ, "OMP_NUM_THREADS": "1", **environ}),
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


@pytest.fixture
def environ(hook: bool) -> Iterator[dict[str, str]]:
    if not hook:
        yield {}
        return
    folder = prepare_job_dir(f"free-{os.getpid()}", SIZE)
    yield worker_environment(folder, os.environ)
    remove_job_dir(folder)


@pytest.mark.parametrize(
    ("hook", "operation"),
    [
        (True, "all_reduce"),
        (False, "recv"),
        pytest.param(True, "recv", marks=pytest.mark.long),
        pytest.param(False, "all_reduce", marks=pytest.mark.long),
    ],
)
def test_survivors_of_a_stopped_peer_are_freed(environ: dict[str, str], operation: str) -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with ExitStack() as running:
        ranks = [
            running.enter_context(
                process([str(store.port), str(rank), str(SIZE), operation], environ)
            )
            for rank in range(SIZE)
        ]
        lines = [line_of(rank) for rank in ranks]
        hooked = str("LD_PRELOAD" in environ)
        assert [line.split()[3] for line in lines] == [hooked] * SIZE
        pid = int(lines[-1].split()[1])
        os.kill(pid, signal.SIGSTOP)
        while not procfs.process_state(pid).startswith("T"):
            pass
        for rank in ranks[:-1]:
            assert rank.stdin is not None
            rank.stdin.write("now\n")
            rank.stdin.flush()
        for rank in ranks[:-1]:
            assert line_of(rank).startswith("freed after")
        for rank in ranks[:-1]:
            assert line_of(rank) == f"again {SIZE - 1}"


def line_of(rank: subprocess.Popen[str]) -> str:
    assert rank.stdout is not None
    line = rank.stdout.readline().strip()
    assert line, "it ended"
    return line
