"""/proc as it is for this very process, and for processes that do not exist."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from relkit.process import procfs
from tests.ends_late import ends_late
from tests.patience import PATIENCE
from tests.waiting import eventually

_NO_PID = 2**22 + 1


def test_own_threads_with_names_and_states() -> None:
    gate = threading.Event()
    worker = threading.Thread(target=gate.wait)
    worker.start()
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        facts = {thread.os_thread_id: thread for thread in procfs.threads(os.getpid())}
    finally:
        signal.signal(signal.SIGUSR2, before)
        gate.set()
        worker.join()
    assert os.getpid() in facts
    assert worker.native_id in facts
    me = facts[threading.get_native_id()]
    assert me.state == "R"
    assert me.cpu_s > 0
    assert me.caught & 1 << (signal.SIGUSR2 - 1)
    assert not me.stop_pending


def test_a_sleeping_thread_does_not_move_and_a_woken_one_does() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys\nfor line in sys.stdin: print(line, flush=True)"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"1\n")
        child.stdin.flush()
        child.stdout.readline()
        end = time.monotonic() + 10
        while procfs.moves(child.pid)[child.pid][0] != "S" and time.monotonic() < end:
            time.sleep(0.001)
        before = procfs.moves(child.pid)
        assert procfs.moves(child.pid) == before
        child.stdin.write(b"2\n")
        child.stdin.flush()
        child.stdout.readline()
        assert procfs.moves(child.pid) != before
    finally:
        child.kill()
        child.communicate()


def test_a_stop_and_its_end_are_seen() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        os.kill(child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        assert procfs.process_state(child.pid) == "T (stopped)"
    finally:
        child.kill()
        child.wait()
    assert procfs.process_state(child.pid) == procfs.GONE


def test_identity_survives_odd_names_and_tells_reused_pids_apart() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "open('/proc/self/comm','w').write('a) S (b'); input()"],
        stdin=subprocess.PIPE,
    )
    try:
        ticks = procfs.start_ticks(child.pid)
        assert ticks > 0
        assert procfs.is_same_process(child.pid, ticks)
        assert procfs.is_same_process(child.pid, 0)
        assert not procfs.is_same_process(child.pid, ticks + 1)
        assert procfs.parent(child.pid) == os.getpid()
        assert child.pid in procfs.children(os.getpid())
        assert child.pid in procfs.descendants(os.getpid())
    finally:
        child.kill()
        child.communicate()
    assert not procfs.is_same_process(child.pid, ticks)


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert procfs.process_state(child.pid) == "Z (zombie)"
        assert not procfs.is_same_process(child.pid, 0)
    finally:
        child.wait()


def test_ranks_from_the_environment() -> None:
    environment = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "OTHER": "x"}
    child = subprocess.Popen(["sleep", "60"], env=environment | {"PATH": os.environ["PATH"]})
    try:
        found = procfs.rank_environment(child.pid, timeout_s=5)
    finally:
        child.kill()
        child.wait()
    assert found == {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}


def test_no_such_process_is_empty_everywhere() -> None:
    assert procfs.threads(_NO_PID) == ()
    assert procfs.process_state(_NO_PID) == procfs.GONE
    assert procfs.start_ticks(_NO_PID) == 0
    assert procfs.cpu_s(_NO_PID) == 0.0
    assert procfs.children(_NO_PID) == ()
    assert procfs.parent(_NO_PID) == 0
    assert procfs.moves(_NO_PID) == {}
    assert procfs.tracer(_NO_PID) == 0
    assert procfs.rank_environment(_NO_PID) == {}
    assert not procfs.is_same_process(_NO_PID, 0)


def test_a_read_that_blocks_is_left_behind() -> None:
    reader, writer = os.pipe()
    try:
        assert procfs.read_within(f"/proc/self/fd/{reader}", 0.05) is None
    finally:
        os.close(writer)
        os.close(reader)


def test_who_shares_a_core_waits_for_it() -> None:
    core = min(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"
    children = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(2)]
    try:
        for child in children:
            eventually(lambda pid=child.pid: procfs.cpu_wait_s(pid) > 0.1, "it waits")  # type: ignore[misc]
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert procfs.cpu_wait_s(_NO_PID) == 0.0


@pytest.mark.root
def test_a_container_has_process_ids_of_its_own() -> None:
    script = "from relkit.process.procfs import has_kernels_pids; print(has_kernels_pids())"
    done = subprocess.run(
        ["unshare", "--pid", "--fork", sys.executable, "-c", script],
        capture_output=True, check=True, text=True, timeout=30 * PATIENCE,
    )  # fmt: skip
    assert done.stdout == "False\n"


def test_who_is_ending() -> None:
    assert not procfs.is_ending(os.getpid())
    assert procfs.is_ending(_NO_PID)
    with ends_late() as pid:
        assert procfs.is_ending(pid)


@pytest.mark.parametrize(
    ("state", "shared", "blocked", "ending"),
    [
        ("R (running)", signal.SIGTERM, None, True),
        ("S (sleeping)", signal.SIGINT, signal.SIGTERM, True),
        ("S (sleeping)", signal.SIGTERM, signal.SIGTERM, False),
        ("S (sleeping)", signal.SIGUSR1, None, False),
        ("T (stopped)", signal.SIGTERM, None, False),
        ("t (tracing stop)", signal.SIGTERM, None, False),
        ("D (disk sleep)", signal.SIGTERM, None, False),
    ],
)
def test_a_signal_that_waits_for_a_process_that_can_run(
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    shared: signal.Signals,
    blocked: signal.Signals | None,
    ending: bool,
) -> None:
    def mask(number: signal.Signals | None) -> str:
        return f"{1 << (number - 1) if number else 0:016x}"

    status = f"State:\t{state}\nSigPnd:\t{mask(None)}\nShdPnd:\t{mask(shared)}\n"
    stat = f"77 (python) {state[0]} 1 77 77 0 -1 4194304 0 0"
    files = {"/proc/77/status": f"{status}SigBlk:\t{mask(blocked)}\n", "/proc/77/stat": stat}
    monkeypatch.setattr(procfs, "_text", lambda path: files.get(str(path), ""))
    assert procfs.is_ending(77) is ending


_BLIND = """
import os, resource
from relkit.process import procfs
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 4096))
for look in (procfs.process, procfs.process_state, procfs.threads, procfs.is_ending):
    try:
        print(look(os.getppid()))
    except OSError as error:
        print(error.strerror)
"""


def test_who_has_no_descriptor_left_takes_nobody_for_gone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _BLIND], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "Too many open files\n" * 4
