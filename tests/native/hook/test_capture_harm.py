"""A capture harms no program, however odd: native/tests/hard_to_capture.c has the programs."""

from __future__ import annotations

import os
import platform
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from relkit.hook.capture import NativeCapture, capture_native
from relkit.hook.interruptible import WAITS_FOR_SIGNALS, Interruptible, current_call
from relkit.stacks.dump.capture import capture_ranks
from relkit.stacks.engines.base import Target
from tests.native.kept import NATIVE
from tests.native.recording import Recording, answer_of, compile_c, process
from tests.waiting import eventually

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("hard") / "hard_to_capture"
    # Bound at its start: at a function's first call the dynamic linker saves all vector registers,
    # with AVX-512 more than the 2 KiB that are left: the thread would end, captured or not.
    flags = ("-Wno-infinite-recursion", "-Wl,-z,now")
    return compile_c(output, [NATIVE / "tests" / "hard_to_capture.c"], *flags)


@contextmanager
def captured(program: Path, recording: Recording, scene: str) -> Iterator[NativeCapture]:
    """Three captures of the scene; the program must go on to its end and have noticed nothing."""
    with process([str(program), scene], recording.environment()) as victim:
        assert victim.stdin is not None
        assert victim.stdout is not None
        assert victim.stdout.readline() == "up\n"
        path, state = recording.path(victim.pid), recording.state(victim.pid)
        for _ in range(3):
            capture = capture_native(path, state, 10.0)
        yield capture
        victim.stdin.write("go\n")
        victim.stdin.flush()
        said = victim.stdout.read()
        assert (victim.wait(20), said) == (0, "0\n")


def test_code_whose_frame_information_is_wrong(recording: Recording, program: Path) -> None:
    with captured(program, recording, "lost") as capture:
        main, lost = capture.threads
        assert capture.missed == ()
    assert (len(main.addresses) > 3, main.truncated) == (True, False)
    assert (len(lost.addresses), lost.truncated) == (1, True)


def test_a_thread_that_waits_for_signals(recording: Recording, program: Path) -> None:
    with captured(program, recording, "collects") as capture:
        assert [reason for _, reason in capture.missed] == [WAITS_FOR_SIGNALS]
        assert len(capture.threads) == 1


@pytest.mark.parametrize("scene", ["takes_all", "signal_all"])
def test_a_program_that_takes_our_signal_later(
    recording: Recording, program: Path, scene: str
) -> None:
    """It finds the signal unused, and none of our requests; those come by another from then on."""
    with captured(program, recording, scene) as capture:
        assert len(capture.threads) == 1


def test_a_thread_at_the_end_of_its_stack(recording: Recording, program: Path) -> None:
    with captured(program, recording, "narrow") as capture:
        (_, reason) = capture.missed[0]
        assert reason.startswith("has no room on its stack")
        assert len(capture.threads) == 1


def test_a_small_stack_for_handlers_is_enough(recording: Recording, program: Path) -> None:
    with captured(program, recording, "narrow_handlers") as capture:
        assert capture.missed == ()
        assert len(capture.threads) == 2


# The kernel's number of read().
_READ = {"x86_64": 0, "aarch64": 63}.get(platform.machine(), -1)


def test_a_call_that_can_be_restarted_does_not_end_early(recording: Recording) -> None:
    """Past Python, which would call again by itself."""
    code = """
load().fake_gemms(1)
libc, room = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(1)
tell("up")
tell(libc.read(0, room, 1), ctypes.get_errno())
"""
    with recording.running(code) as victim:
        path, state = recording.path(victim.pid), recording.state(victim.pid)
        for _ in range(3):
            eventually(
                lambda: (call := current_call(victim.pid, victim.pid)) and call.number == _READ,
                "it does not read",
            )
            capture = capture_native(path, state, 10.0)
            assert len(capture.threads) == 1
        assert answer_of(victim, "x") == "1 0\n"


def test_a_thread_that_is_not_asked_has_its_python_stack(recording: Recording) -> None:
    code = """
import signal
load().fake_gemms(1)
def wait_for_a_signal():
    tell("up")
    signal.sigwaitinfo({signal.SIGUSR1})
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
wait_for_a_signal()
tell("went on")
"""
    with recording.running(code) as victim:
        assert victim.stdout is not None
        path = recording.path(victim.pid)
        eventually(lambda: Interruptible(victim.pid).why_not(victim.pid), "it does not wait")
        (dump,) = capture_ranks([Target(victim.pid, 0, 1, "here", "job", path)], deadline_s=20)
        os.kill(victim.pid, signal.SIGUSR1)
        assert victim.stdout.readline() == "went on\n"
    reason = f"hook: no native stack of thread {victim.pid}: {WAITS_FOR_SIGNALS}"
    assert reason in dump.notes
    (main,) = dump.python
    assert "wait_for_a_signal" in [frame.func for frame in main.frames]
