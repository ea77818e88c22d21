"""capture_ranks on real processes in the states that hung jobs are found in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil

from relkit.process import procfs
from relkit.stacks.dump.capture import capture_ranks
from relkit.stacks.model import RankDump, Role
from tests.native.capture.targets import (
    BEATING,
    UNREADABLE,
    is_stopped,
    locked,
    resume,
    running,
    still_beats,
    target,
    uninterruptible,
    until,
)


def _functions(dump: RankDump, name: str) -> list[str]:
    return [f.func for t in dump.python if t.name == name for f in t.frames]


def test_blocked_threads_are_seen_with_names_and_states() -> None:
    with locked() as process:
        (dump,) = capture_ranks([target(process.pid, 3, 8)], deadline_s=20)
    assert (dump.rank, dump.world_size, dump.pid) == (3, 8, process.pid)
    assert dump.process_state == "S (sleeping)"
    assert [t.name for t in dump.python] == ["MainThread", "my-loader"]
    assert [t.role for t in dump.python] == [Role.MAIN, Role.LOADER]
    assert _functions(dump, "my-loader")[0] == "wait_for_the_lock"
    assert all(t.state == "S" and t.kernel.startswith("futex") for t in dump.python)
    assert dump.python[0].os_thread_id == process.pid


def test_without_the_hook_a_fallback_gives_native_frames() -> None:
    with locked() as process:
        (dump,) = capture_ranks([target(process.pid)], deadline_s=20)
        assert not is_stopped(process.pid)
    main = dump.native[0]
    assert main.role is Role.MAIN
    assert "PyThread_acquire_lock_timed" in [f.func for f in main.frames]
    assert any(f.func == "_PyEval_EvalFrameDefault" for f in main.frames)
    assert not any(f.func.startswith("0x") for t in dump.native for f in t.frames)
    assert dump.engines[0] == "py-spy"
    assert len(dump.engines) == 2


def test_a_running_loop_is_read_with_a_note_or_exactly() -> None:
    script = "def spin():\n    print('up', flush=True)\n    while True: sum(range(50))\nspin()\n"
    with running(script) as process:
        (dump,) = capture_ranks([target(process.pid)], deadline_s=10, native_fallback=False)
    assert _functions(dump, "MainThread")[:2] == ["spin", "<module>"]


def test_a_stopped_process_is_read_and_stays_stopped() -> None:
    with locked() as process:
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: is_stopped(process.pid), "stopped")
        (dump,) = capture_ranks([target(process.pid)], deadline_s=10)
        assert procfs.process_state(process.pid).startswith("T")
        resume(process.pid)
        until(lambda: not is_stopped(process.pid), "going again")
    assert dump.process_state == "T (stopped)"
    assert _functions(dump, "MainThread")[0] == "wait_for_the_lock"
    assert any("stopped already" in note for note in dump.notes)


def test_uninterruptible_sleep_neither_hangs_the_capture_nor_stops_the_process(
    tmp_path: Path,
) -> None:
    with uninterruptible(tmp_path) as (process, wake):
        # A capture that hangs would give a dump without stacks at its deadline.
        (dump,) = capture_ranks([target(process.pid)], deadline_s=20)
        assert dump.process_state.startswith("D")
        assert _functions(dump, "MainThread") == ["<module>"]
        assert any("uninterruptible sleep" in note for note in dump.notes)
        wake()
        assert process.stdout is not None
        assert process.stdout.readline() == b"woken\n"
        assert not is_stopped(process.pid)


def test_a_process_that_is_gone_yields_a_dump() -> None:
    with locked() as process:
        was = target(process.pid)
    (dump,) = capture_ranks([was], deadline_s=5)
    assert dump.process_state == "gone"
    assert dump.notes == (f"process {was.pid} has ended",)


def test_a_reused_pid_is_not_taken_for_the_rank() -> None:
    with locked() as process:
        other = target(process.pid)
        (dump,) = capture_ranks(
            [type(other)(other.pid, 0, 1, "here", "job", start_ticks=other.start_ticks + 1)],
            deadline_s=5,
        )
    assert dump.process_state == "gone"
    assert dump.python == ()


def test_a_process_that_dies_in_mid_capture_yields_a_dump() -> None:
    with locked() as process:
        dumps: list[RankDump] = []
        at = target(process.pid)
        worker = threading.Thread(
            target=lambda: dumps.extend(capture_ranks([at], deadline_s=10)), daemon=True
        )
        me = psutil.Process()
        before = {child.pid for child in me.children()}
        worker.start()
        until(
            lambda: not worker.is_alive() or {c.pid for c in me.children()} - before,
            "a collector at work",
        )
        process.kill()
        worker.join(10)
    assert len(dumps) == 1
    assert any("ended" in note for note in dumps[0].notes)


def test_many_ranks_at_once_keep_their_order() -> None:
    with locked() as one, running(BEATING) as two, locked() as three:
        pids = [one.pid, two.pid, three.pid]
        seen: list[tuple[int, int]] = []
        dumps = capture_ranks(
            [target(pid, rank, 3) for rank, pid in enumerate(pids)],
            deadline_s=10,
            native_fallback=False,
            progress=lambda done, total: seen.append((done, total)),
        )
    assert [dump.pid for dump in dumps] == pids
    assert all(dump.python for dump in dumps)
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_no_targets_no_dumps() -> None:
    assert capture_ranks([], deadline_s=1) == ()


# Gives up CAP_SYS_PTRACE and what else root has, as in a container, then captures.
_WITHOUT_RIGHTS = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.prctl(24, 19, 0, 0, 0)  # PR_CAPBSET_DROP CAP_SYS_PTRACE: gone after the next exec
os.execv(sys.executable, [sys.executable, "-c", '''
import sys
from relkit.stacks.dump.capture import capture_ranks
from relkit.stacks.engines.base import Target
(dump,) = capture_ranks([Target(int(sys.argv[1]), 0, 1, "here", "")], deadline_s=10)
assert dump.python == () and dump.native == ()
print(dump.process_state)
print(*dump.notes, sep="\\\\n")
''', sys.argv[1]])
"""


def test_without_rights_the_notes_say_what_to_do() -> None:
    with running(UNREADABLE) as process:
        found = subprocess.run(
            [sys.executable, "-c", _WITHOUT_RIGHTS, str(process.pid)],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    state, *notes = found.stdout.splitlines()
    assert state == "S (sleeping)"
    assert any("no right to read process" in note for note in notes)
    assert any("CAP_SYS_PTRACE" in note for note in notes)


def test_a_process_that_is_no_python_is_said_to_be_none() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        (dump,) = capture_ranks([target(process.pid)], deadline_s=5, native_fallback=False)
    finally:
        process.kill()
        process.wait()
    assert dump.python == ()
    assert any("no Python interpreter found" in note for note in dump.notes)


def test_the_beating_process_goes_on_after_a_capture() -> None:
    with running(BEATING) as process:
        capture_ranks([target(process.pid)], deadline_s=20)
        assert still_beats(process)
