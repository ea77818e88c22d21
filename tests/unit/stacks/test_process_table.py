"""The table of processes: what it reads of real ones, whatever they call themselves."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.stacks.dump import process_table
from relkit.stacks.dump.process_table import DENIED, LATE, Seen, look, rank_variables
from tests.patience import PATIENCE

_WAITS = "print('up', flush=True); input()"


@contextmanager
def _process(environ: dict[str, str], *words: str, code: str = _WAITS) -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", code, *words],
        env={**os.environ, **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def _look() -> dict[int, Seen]:
    return {each.pid: each for each in look(10 * PATIENCE)}


def test_a_process_is_seen_with_its_ranks_variables_and_no_others() -> None:
    with _process({"RANK": "3", "WORLD_SIZE": "4", "HOME": "/x"}, "train.py") as pid:
        seen = _look()[pid]
    assert seen.environ == {"RANK": "3", "WORLD_SIZE": "4"}
    assert (seen.parent, seen.uid, seen.problem) == (os.getpid(), os.getuid(), "")
    assert seen.is_python
    assert seen.words[-1] == "train.py"
    assert seen.network.startswith("net:[")
    assert _look().get(pid) is None


def test_names_with_line_ends_brackets_and_huge_environments_are_only_text() -> None:
    name = "x) R 1 1\n(Uid:\t0\n"
    code = f"open('/proc/self/comm', 'w').write({name!r}); {_WAITS}"
    # One string of an environment has 128 KiB at most.
    huge = {f"FILL_{number}": "x" * 100_000 for number in range(10)}
    lies = {"RANK": "0\nRANK=5", "WORLD_SIZE": "1" * 300, "MASTER_ADDR": "\x1b[2J"}
    with _process({**huge, **lies, "LOCAL_WORLD_SIZE": "2"}, code=code) as pid:
        seen = _look()[pid]
    assert (seen.parent, seen.uid, seen.problem) == (os.getpid(), os.getuid(), "")
    assert seen.environ == {
        "RANK": "0\nRANK=5",
        "MASTER_ADDR": "\x1b[2J",
        "LOCAL_WORLD_SIZE": "2",
    }


def test_zombies_and_threads_of_the_kernel_are_no_trouble() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert process.pid not in _look()


@pytest.mark.root
def test_processes_of_others_are_said_to_be_denied() -> None:
    code = (
        "import os, sys\n"
        "from relkit.stacks.dump.process_table import look\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        f"seen = [each for each in look({10 * PATIENCE}) if each.pid == int(sys.argv[1])]\n"
        "print(seen[0].problem, seen[0].uid)"
    )
    with _process({"RANK": "0", "WORLD_SIZE": "1"}) as pid:
        said = subprocess.run(
            [sys.executable, "-c", code, str(pid)], capture_output=True, text=True, check=True,
            timeout=60 * PATIENCE,
        ).stdout  # fmt: skip
    assert said.split() == [DENIED, "0"]


def test_processes_that_the_kernel_keeps_locked_are_late_and_the_others_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More of them than readers, as where all ranks of a host wait for one file system."""
    real, never, mine = process_table._whole, threading.Event(), os.getpid()

    def stuck(head: Seen) -> Seen | None:
        if head.pid != mine:
            never.wait()
        return real(head)

    monkeypatch.setattr(process_table, "_PATIENCE_S", 0.01)
    monkeypatch.setattr(process_table, "_whole", stuck)
    others = [os.getppid(), *range(2**22 + 1, 2**22 + 40)]
    heads = {pid: Seen(pid, 1, 1, 0, "python", problem=LATE) for pid in others}
    monkeypatch.setattr(process_table, "_pids", lambda: [*others, mine])
    real_head = process_table._head
    monkeypatch.setattr(process_table, "_head", lambda pid: heads.get(pid) or real_head(pid))
    try:
        seen = {each.pid: each for each in look(2.0 * PATIENCE)}
    finally:
        never.set()
    assert seen[mine].problem == ""
    assert {seen[pid].problem for pid in others} == {LATE}


@given(st.binary(max_size=400))
def test_any_bytes_are_an_environment(raw: bytes) -> None:
    rank_variables(raw)


def test_of_a_name_that_is_there_twice_the_first_counts() -> None:
    assert rank_variables(b"RANK=1\0RANK=2\0=\0RANK\0WORLD_SIZE=\xff") == {
        "RANK": "1",
        "WORLD_SIZE": "�",
    }
