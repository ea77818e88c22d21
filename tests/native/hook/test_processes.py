"""The hook in processes that load late, fork, exec, thread, or never call a hooked function."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from relkit.hook.model import OpKind
from relkit.hook.reader import read_state, state_files
from tests.native.recording import Recording, answer_of
from tests.waiting import eventually

pytestmark = pytest.mark.native


def test_a_library_that_is_loaded_late_and_privately_is_recorded(recording: Recording) -> None:
    recording.run("fake = load(); fake.fake_gemms(3); fake.fake_collectives(1, 4, 0, 10, 5)")
    state = recording.only_state()
    assert (state.started, state.finished, state.dropped) == (8, 8, 0)
    assert [op.name for op in state.recent] == ["sgemm"] * 3 + ["allreduce"] * 5
    assert [op.seq for op in state.recent] == [-1] * 3 + [0, 1, 2, 3, 4]
    assert {op.size_bytes for op in state.recent if op.kind == OpKind.COLLECTIVE} == {40}
    (group,) = state.communicators
    assert (group.rank, group.size, group.seq) == (1, 4, 4)
    assert "allreduce" not in state.missing
    assert "broadcast" in state.missing  # the stand-in has none
    assert state.in_flight == ()


def test_small_products_are_counted_and_not_timed(recording: Recording) -> None:
    recording.run("fake = load(); fake.fake_small_gemms(5000); fake.fake_gemms(2)")
    state = recording.only_state()
    assert (state.started, state.finished) == (5002, 5002)
    assert [(op.name, op.size_bytes) for op in state.recent] == [("sgemm", 3 * 4 * 512**2)] * 2


def test_rank_and_world_come_from_the_environment(recording: Recording) -> None:
    code = "load().fake_gemms(1); tell(os.getpid())"
    pid = int(recording.run(code, RANK="5", LOCAL_RANK="1", WORLD_SIZE="8"))
    state = recording.state(pid)
    assert (state.rank, state.local_rank, state.world_size) == (5, 1, 8)
    assert state.pid == pid


@pytest.mark.parametrize("value", ["", "x", "-3", "99999999999999999999"])
def test_a_rank_that_is_no_number_is_unknown(recording: Recording, value: str) -> None:
    recording.run("load().fake_gemms(1)", RANK=value)
    assert recording.only_state().rank == -1


def test_a_process_that_calls_nothing_leaves_no_file(recording: Recording) -> None:
    code = "import json, ctypes; load(); tell(os.environ['LD_PRELOAD'])"
    assert "librelkit_hook.so" in recording.run(code)
    assert list(recording.folder.iterdir()) == []


def test_the_kill_switch_comes_first(recording: Recording) -> None:
    recording.run("load().fake_gemms(1)", RELKIT_HOOK_DISABLE="1")
    assert list(recording.folder.iterdir()) == []


@pytest.mark.parametrize("folder", ["", "relative/folder", "/nonexistent/folder", "/proc/1"])
def test_a_folder_that_cannot_be_used_stops_no_job(recording: Recording, folder: str) -> None:
    code = "fake = load(); fake.fake_gemms(1000); tell('went on')"
    assert recording.run(code, RELKIT_HOOK_DIR=folder) == "went on\n"
    assert list(recording.folder.iterdir()) == []


def test_a_full_file_system_stops_no_job(recording: Recording) -> None:
    """Growing a file beyond the limit raises SIGXFSZ, which kills: the hook must not try."""
    command = [
        sys.executable,
        "-c",
        "import signal, ctypes, os\nsignal.signal(25, signal.SIG_DFL)\n",
    ]
    command[-1] += (
        "fake = ctypes.CDLL(os.environ['FAKE_TORCH']); fake.fake_collectives(0, 2, 0, 1, 9)"
    )
    done = subprocess.run(
        command,
        env=recording.environment(),
        timeout=20,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536)),
    )
    assert done.returncode == 0
    assert state_files(recording.folder) == []


@pytest.mark.root
def test_a_full_shared_memory_stops_no_job(recording: Recording, small_folder: Path) -> None:
    code = "fake = load(); fake.fake_gemms(1000); tell('went on')"
    assert recording.run(code, RELKIT_HOOK_DIR=str(small_folder)) == "went on\n"
    assert state_files(small_folder) == []


def test_a_forked_child_records_for_itself(recording: Recording) -> None:
    code = """
fake = load()
fake.fake_gemms(10)
child = os.fork()
if child == 0:
    fake.fake_collectives(0, 1, 0, 1, 3)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
idle = os.fork()
if idle == 0:
    os._exit(0)
assert os.waitpid(idle, 0)[1] == 0
fake.fake_gemms(1)
tell(os.getpid(), child)
"""
    parent, child = map(int, recording.run(code).split())
    assert {int(path.stem) for path in state_files(recording.folder)} == {parent, child}
    assert recording.state(parent).finished == 11
    assert recording.state(child).finished == 3
    assert recording.state(child).capture_signal == recording.state(parent).capture_signal


def test_a_child_forked_inside_a_hooked_call_leaves_the_parents_file_alone(
    recording: Recording,
) -> None:
    code = """
fake = load()
body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: children.append(os.fork()))
children = []
ctypes.c_void_p.in_dll(fake, "fake_body").value = ctypes.cast(body, ctypes.c_void_p).value
fake.fake_collectives(0, 1, 0, 1, 1)
ctypes.c_void_p.in_dll(fake, "fake_body").value = None
if children[0] == 0:
    fake.fake_collectives(0, 1, 7, 1, 2)
    os._exit(0)
assert os.waitpid(children[0], 0)[1] == 0
tell(os.getpid(), children[0])
"""
    parent, child = map(int, recording.run(code).split())
    assert [op.seq for op in recording.state(parent).recent] == [0]
    assert [op.seq for op in recording.state(child).recent] == [7, 8]
    assert recording.state(child).in_flight == ()


def test_recording_holds_no_descriptor(recording: Recording) -> None:
    """Programs close what they did not open by number, and open their own under those numbers."""
    code = """
fake = load()
before = sorted(os.listdir("/proc/self/fd"))
fake.fake_collectives(0, 1, 0, 1, 1)
tell(sorted(os.listdir("/proc/self/fd")) == before)
"""
    assert recording.run(code).strip() == "True"
    assert recording.only_state().recent


def test_a_program_that_execs_another_starts_a_new_record(recording: Recording) -> None:
    code = """
load().fake_gemms(10)
if sys.argv[1] == "again":
    os.execv(sys.executable, [sys.executable, "-c", os.environ["CODE"], "last"])
tell(os.getpid())
"""
    full = "import ctypes, os, sys\nfake = ctypes.CDLL(os.environ['FAKE_TORCH'])\n"
    full += "def load():\n    return fake\ndef tell(*w):\n    print(*w)\n" + code
    pid = int(recording.run(code, "again", CODE=full))
    assert recording.state(pid).pid == pid
    assert recording.only_state().recent


def test_threads_that_come_and_go_share_slots(recording: Recording) -> None:
    code = """
fake = load()
fake.fake_gemms(1)  # threads that come while the recorder starts may go on unrecorded
for _ in range(40):
    threads = [threading.Thread(target=fake.fake_gemms, args=(5,)) for _ in range(10)]
    [t.start() for t in threads]
    [t.join() for t in threads]
"""
    recording.run(code)
    state = recording.only_state()
    assert (state.started, state.finished, state.dropped) == (2001, 2001, 0)
    assert state.in_flight == ()


def test_an_operation_in_flight_is_seen_from_outside(recording: Recording) -> None:
    code = """
fake = load()
reader, writer = os.pipe()
body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: (tell("up"), sys.stdin.readline()))
ctypes.c_void_p.in_dll(fake, "fake_body").value = ctypes.cast(body, ctypes.c_void_p).value
fake.fake_collectives(2, 4, 41, 256, 1)
tell("done")
sys.stdin.readline()
"""
    with recording.running(code) as victim:
        state = recording.state(victim.pid)
        (op,) = state.in_flight
        assert (op.name, op.seq, op.size_bytes, op.end_ns) == ("allreduce", 41, 1024, 0)
        assert op.os_thread_id == victim.pid
        assert 0 < op.start_ns < state.now_ns
        assert (state.started, state.finished) == (1, 0)
        assert answer_of(victim) == "done\n"
        after = recording.state(victim.pid)
        assert after.in_flight == ()
        assert after.recent[0].start_ns == op.start_ns


def test_the_file_outlives_the_process(recording: Recording) -> None:
    with recording.running("load().fake_collectives(0, 2, 0, 1, 3); tell('up'); input()") as victim:
        pass
    eventually(lambda: not Path(f"/proc/{victim.pid}").exists(), "the victim ends")
    assert [op.seq for op in read_state(recording.path(victim.pid)).recent] == [0, 1, 2]
    assert recording.path(victim.pid).stat().st_mode & 0o777 == 0o600
