"""Processes by number, start and PID namespace: strangers of the same number are never meant."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from relkit.process import procfs
from relkit.process.identity import (
    ProcessFinder,
    ProcessIdentity,
    own_identity,
    own_name,
    own_namespace,
)

_CODE = """
import os
from relkit.process.identity import own_identity
me = own_identity()
print(me.pid, me.start_ticks, me.namespace, flush=True)
input()
"""
# Says what this host's processes look like where /proc is another namespace's.
_WITHOUT_PROC = """
import os
from relkit.process import procfs
from relkit.process.identity import own_identity
print(os.getpid(), procfs.is_own(), procfs.process_state(1), procfs.descendants(1))
print(own_identity().start_ticks, own_identity().namespace, procfs.all_pids())
"""


@pytest.fixture
def inside() -> Iterator[ProcessIdentity]:
    """A process in a PID namespace of its own, as it knows itself."""
    with subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c", _CODE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        pid, ticks, namespace = map(int, process.stdout.readline().split())
        yield ProcessIdentity(pid, ticks, namespace)
        process.kill()


def test_this_process_is_known_by_its_number() -> None:
    me = own_identity()
    assert me == ProcessIdentity(os.getpid(), procfs.start_ticks(os.getpid()), own_namespace())
    assert me.namespace == Path("/proc/self/ns/pid").stat().st_ino
    assert ProcessFinder().number_of(me) == os.getpid()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert me.to_text() == f"{me.pid}/{me.start_ticks}/{me.namespace}/{boot}"
    inside = "" if procfs.has_kernels_pids() else f"-{me.namespace}"
    assert own_name() == f"{os.getpid()}{inside}"


def test_nobody_is_meant_where_something_is_not_known() -> None:
    me, finder = own_identity(), ProcessFinder()
    assert finder.number_of(replace(me, namespace=0)) is None
    assert finder.number_of(replace(me, start_ticks=0)) is None
    assert finder.number_of(replace(me, namespace=me.namespace + 1)) is None


@pytest.mark.root
def test_a_process_of_another_namespace_is_found_by_the_number_that_it_has_here(
    inside: ProcessIdentity,
) -> None:
    assert inside.pid == 1
    number = ProcessFinder().number_of(inside)
    assert number is not None
    assert number != inside.pid
    assert procfs.is_same_process(number, inside.start_ticks)
    assert (procfs.own_number(number), procfs.pid_namespace(number)) == (1, inside.namespace)
    # Another process of that number there, before or after it.
    assert ProcessFinder().number_of(replace(inside, start_ticks=1)) is None


@pytest.mark.root
def test_proc_is_not_searched_at_every_look(
    inside: ProcessIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, now_s, every = [0], [0.0], procfs.all_pids

    def all_pids() -> tuple[int, ...]:
        looks[0] += 1
        return every()

    monkeypatch.setattr(procfs, "all_pids", all_pids)
    finder = ProcessFinder(lambda: now_s[0])
    unknown = replace(inside, start_ticks=1)
    for _ in range(3):
        assert finder.number_of(unknown) is None
        assert finder.number_of(inside)
    assert looks == [1]
    now_s[0] = 6.0
    assert finder.number_of(unknown) is None
    assert looks == [2]


@pytest.mark.root
def test_where_proc_shows_others_nobody_is_seen() -> None:
    done = subprocess.run(
        ["unshare", "--pid", "--fork", sys.executable, "-c", _WITHOUT_PROC],
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    assert done.stdout.splitlines() == ["1 False gone ()", "0 0 ()"]


def test_where_no_process_says_its_namespace_the_start_time_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(procfs, "pid_namespace", lambda _: 0)
    me, finder = own_identity(), ProcessFinder()
    assert me.namespace == 0
    assert finder.number_of(me) == os.getpid()
    assert finder.number_of(replace(me, start_ticks=me.start_ticks - 1)) is None
    assert finder.number_of(replace(me, namespace=1)) is None
