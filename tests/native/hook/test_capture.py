"""Capture of threads that make it hard, and refusal where a signal would do harm."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from relkit.errors import CaptureFailed
from relkit.hook import capture as capture_module
from relkit.hook import layout, request
from relkit.hook.capture import _UNBLOCK_GRACE_S, BATCH, capture_native
from relkit.hook.release import release
from relkit.hook.state_file import open_state_file
from relkit.hook.threads import (
    ThreadStatus,
    thread_status,
    thread_statuses,
)
from relkit.process import procfs
from tests.native.recording import Recording, answer_of, compile_c, process
from tests.waiting import eventually

pytestmark = pytest.mark.native

WAITING = "load().fake_gemms(1); tell('up'); sys.stdin.readline(); tell('went on')"


def test_every_thread_of_many_is_captured(recording: Recording) -> None:
    """More threads than one batch, and more than the hook has room for at once."""
    code = """
load().fake_gemms(1)
threading.stack_size(131072)
stop = threading.Event()
[threading.Thread(target=stop.wait, daemon=True).start() for _ in range(300)]
tell("up")
sys.stdin.readline()
"""
    assert BATCH < layout.RING_LENGTH * 4 < 300
    with recording.running(code) as victim:
        path, state = recording.path(victim.pid), recording.state(victim.pid)
        for _ in range(3):
            capture = capture_native(path, state, 10.0)
            assert capture.missed == ()
            assert len(capture.threads) == 301
            assert [t.os_thread_id for t in capture.threads] == [
                t.os_thread_id for t in thread_statuses(victim.pid)
            ]


def test_addresses_lie_in_the_programs_own_code(recording: Recording) -> None:
    with recording.running(WAITING) as victim:
        capture = capture_native(recording.path(victim.pid), recording.state(victim.pid), 5.0)
        text = [
            tuple(int(part, 16) for part in line.split()[0].split("-"))
            for line in Path(f"/proc/{victim.pid}/maps").read_text().splitlines()
            if line.split()[1][2] == "x"
        ]
        own = [
            tuple(int(part, 16) for part in line.split()[0].split("-"))
            for line in Path(f"/proc/{victim.pid}/maps").read_text().splitlines()
            if "librelkit_hook" in line
        ]
    (thread,) = capture.threads
    assert thread.os_thread_id == victim.pid
    assert len(thread.addresses) > 5
    for address in thread.addresses:
        assert any(low <= address < high for low, high in text)
        # The handler's own frames are not part of the stack.
        assert not any(low <= address < high for low, high in own)


def test_a_deep_stack_is_cut_and_says_so(recording: Recording) -> None:
    code = """
fake = load()
fake.fake_gemms(1)
def deeper(left):
    if left == 0:
        tell("up")
        sys.stdin.readline()
    else:
        sorted([left], key=lambda _: deeper(left - 1))
deeper(100)
"""
    with recording.running(code) as victim:
        capture = capture_native(recording.path(victim.pid), recording.state(victim.pid), 5.0)
    (thread,) = capture.threads
    assert thread.truncated
    assert len(thread.addresses) == layout.CAPTURE_DEPTH


@pytest.mark.parametrize("does", ["threading.Event().wait()", "while True: pass"])
def test_a_thread_that_blocks_the_signal_is_reported(recording: Recording, does: str) -> None:
    code = f"""
import signal
load().fake_gemms(1)
def deaf():
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    tell("up")
    {does}
threading.Thread(target=deaf, daemon=True).start()
sys.stdin.readline()
"""
    with recording.running(code) as victim:
        capture = capture_native(recording.path(victim.pid), recording.state(victim.pid), 5.0)
    assert [reason for _, reason in capture.missed] == ["blocks the hook's signal"]
    assert [thread.os_thread_id for thread in capture.threads] == [victim.pid]
    assert capture.wall_s < 2.0


def test_a_thread_that_has_no_core_is_waited_for(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What /proc says of one that has no core yet; the real one cannot be held there.
    has_core_s = time.monotonic() + 3 * _UNBLOCK_GRACE_S

    def status(pid: int, tid: int) -> ThreadStatus | None:
        real = thread_status(pid, tid)
        if real is None or time.monotonic() >= has_core_s:
            return real
        return dataclasses.replace(real, state="R", blocked=(1 << 64) - 1)

    def statuses(pid: int) -> list[ThreadStatus]:
        return [found for found in (status(pid, pid),) if found is not None]

    with recording.running(WAITING) as victim:
        path, state = recording.path(victim.pid), recording.state(victim.pid)
        monkeypatch.setattr(capture_module, "thread_status", status)
        monkeypatch.setattr(capture_module, "thread_statuses", statuses)
        capture = capture_native(path, state, 30.0)
    assert capture.missed == ()
    assert [thread.os_thread_id for thread in capture.threads] == [victim.pid]


def test_threads_that_come_and_go_do_no_harm(recording: Recording) -> None:
    code = """
load().fake_gemms(1)
stop = threading.Event()
def breed():
    while not stop.is_set():
        threading.Thread(target=time.sleep, args=(0.0005,)).start()
threading.Thread(target=breed).start()
tell("up")
sys.stdin.readline()
stop.set()
tell("went on")
"""
    with recording.running(code) as victim:
        path, state = recording.path(victim.pid), recording.state(victim.pid)
        for _ in range(30):
            capture = capture_native(path, state, 5.0)
            assert victim.pid in {thread.os_thread_id for thread in capture.threads}
            assert {reason for _, reason in capture.missed} <= {
                "ended meanwhile",
                "a zombie",
                "dead",
            }
        assert answer_of(victim) == "went on\n"


def test_two_collectors_at_once_get_their_own_answers(recording: Recording) -> None:
    code = """
load().fake_gemms(1)
stop = threading.Event()
[threading.Thread(target=stop.wait, daemon=True).start() for _ in range(40)]
tell("up")
sys.stdin.readline()
"""
    with recording.running(code) as victim:
        path, state = recording.path(victim.pid), recording.state(victim.pid)
        counts: list[int] = []

        def collect() -> None:
            counts.extend(len(capture_native(path, state, 10.0).threads) for _ in range(20))

        collectors = [threading.Thread(target=collect) for _ in range(2)]
        for collector in collectors:
            collector.start()
        for collector in collectors:
            collector.join()
    assert counts == [41] * 40


def test_the_answer_to_an_old_request_is_not_taken_for_a_new_one(recording: Recording) -> None:
    with recording.running(WAITING) as victim:
        path, state = recording.path(victim.pid), recording.state(victim.pid)
        victim.send_signal(signal.SIGSTOP)
        eventually(lambda: _state_of(victim.pid) == "T", "the victim is stopped")
        for generation in (11, 12, 13):
            number, kind = state.capture_signal, layout.REQUEST_CAPTURE
            request.send(victim.pid, victim.pid, number, kind, generation)
        victim.send_signal(signal.SIGCONT)
        eventually(lambda: _state_of(victim.pid) == "S", "the victim sleeps again")
        capture = capture_native(path, state, 5.0)
        assert len(capture.threads) == 1
        with open_state_file(path) as file:
            rows = file.rows(int(file.header["captures_at"]), layout.CAPTURE, 8)
        assert {11, 12, 13} < set(rows["generation"].tolist())


def _state_of(pid: int) -> str:
    status = thread_status(pid, pid)
    return status.state if status else ""


def test_a_stray_signal_does_nothing(recording: Recording) -> None:
    with recording.running(WAITING) as victim:
        state = recording.state(victim.pid)
        os.kill(victim.pid, state.capture_signal)
        request.send(victim.pid, victim.pid, state.capture_signal, 99, 5)
        assert len(capture_native(recording.path(victim.pid), state, 5.0).threads) == 1
        assert answer_of(victim) == "went on\n"


def test_a_process_that_lost_the_handler_is_never_signalled(recording: Recording) -> None:
    code = """
load().fake_gemms(1)
# By the kernel alone, which no library sees.
default, call = ctypes.create_string_buffer(32), {"x86_64": 13, "aarch64": 134}[os.uname().machine]
for number in range(34, 65):
    assert ctypes.CDLL(None).syscall(call, number, default, None, 8) == 0
tell("up")
sys.stdin.readline()
"""
    with recording.running(code) as victim:
        path, state = recording.path(victim.pid), recording.state(victim.pid)
        with pytest.raises(CaptureFailed, match="replaced"):
            capture_native(path, state, 1.0)
        with pytest.raises(CaptureFailed, match="replaced"):
            release(path, state, 1.0)
        assert victim.poll() is None


def test_a_dead_process_and_a_reused_pid(recording: Recording) -> None:
    with recording.running(WAITING) as victim:
        path, state = recording.path(victim.pid), recording.state(victim.pid)
        assert state.start_ticks == procfs.start_ticks(victim.pid) > 0
        other = dataclasses.replace(state, start_ticks=state.start_ticks - 1)
        with pytest.raises(CaptureFailed, match="has ended"):
            capture_native(path, other, 1.0)
    with pytest.raises(CaptureFailed, match="has ended"):
        capture_native(path, state, 1.0)


def test_signals_that_the_program_uses_are_left_to_it(recording: Recording) -> None:
    code = """
import signal
signal.signal(signal.SIGRTMAX - 3, lambda *_: None)
load().fake_gemms(1)
tell("up")
sys.stdin.readline()
"""
    with recording.running(code) as victim:
        assert recording.state(victim.pid).capture_signal == signal.SIGRTMAX - 4


def test_a_program_that_uses_every_signal_is_recorded_without_capture(recording: Recording) -> None:
    code = """
import signal
for number in range(signal.SIGRTMIN, signal.SIGRTMAX + 1):
    signal.signal(number, signal.SIG_IGN)
load().fake_gemms(7)
tell("up")
sys.stdin.readline()
"""
    with recording.running(code) as victim:
        state = recording.state(victim.pid)
        assert (state.finished, state.capture_signal) == (7, 0)
        with pytest.raises(CaptureFailed, match="every real-time signal"):
            capture_native(recording.path(victim.pid), state, 1.0)


LOADING = """
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void *load_for_ever(void *unused)
{
    for (;;) {
        void *handle = dlopen("libm.so.6", RTLD_NOW);
        dlsym(handle, "no_such_function");
        dlclose(handle);
    }
    return unused;
}

int main(void)
{
    void *fake = dlopen(getenv("FAKE_TORCH"), RTLD_NOW);
    double (*gemms)(long) = (double (*)(long))dlsym(fake, "fake_gemms");
    gemms(1);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, load_for_ever, NULL);
    puts("up");
    fflush(stdout);
    getchar();
    return 0;
}
"""


def test_threads_inside_the_loader_do_not_deadlock(recording: Recording, tmp_path: Path) -> None:
    """They hold the loader's lock when the signal comes: unwinding must not ask for it."""
    source = tmp_path / "loading.c"
    source.write_text(LOADING)
    program = compile_c(tmp_path / "loading", [source])
    with process([str(program)], recording.environment()) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "up\n"
        for _ in range(40):
            capture = capture_native(recording.path(victim.pid), recording.state(victim.pid), 10.0)
            assert capture.missed == ()
            assert len(capture.threads) == 5
