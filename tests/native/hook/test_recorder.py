"""The recorder's C tests, without preloading: plain, and under the sanitizers."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from relkit.hook import layout
from relkit.hook.events import EventReader
from relkit.hook.model import HookState
from relkit.hook.reader import read_state
from tests.native.kept import NATIVE
from tests.native.recording import CORE, compile_c, process

pytestmark = pytest.mark.native
SOURCES = [NATIVE / "tests" / "recorder_test.c", *CORE]
TESTS = ("recorder_test", "event_ring_test", "peers_test", "gloo_posts_test")


@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(("-O2",), id="plain"),
        pytest.param(
            ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"), id="asan-ubsan"
        ),
        pytest.param(("-O1", "-fsanitize=thread"), id="tsan"),
    ],
)
def test_recorder_in_c(tmp_path: Path, flags: tuple[str, ...], name: str) -> None:
    program = compile_c(tmp_path / name, [NATIVE / "tests" / f"{name}.c", *CORE], *flags)
    done = subprocess.run(
        [str(program), str(tmp_path)], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all passed" in done.stdout


def test_a_process_killed_in_mid_write_leaves_a_readable_file(tmp_path: Path) -> None:
    program = compile_c(tmp_path / "recorder_test", SOURCES, "-O2")
    for round_number in range(60):
        with process([str(program), str(tmp_path), "loop"], {}) as victim:
            assert victim.stdout is not None
            assert victim.stdout.readline() == "recording\n"
            path = tmp_path / f"{victim.pid}.rkhook"
            live = read_state(path)
            while live.finished < 1000 * round_number + 1:
                live = read_state(path)
                _check(live)
            victim.send_signal(signal.SIGKILL)
            victim.wait(10)
        state = read_state(path)
        _check(state)
        assert state.finished >= live.finished
        assert state.started - state.finished in (0, 1)
        numbers = sorted(op.seq for op in read_state(path, history=False).recent)
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert numbers[-1] in (state.finished, state.finished + 1)
        assert len(state.in_flight) <= 1
        _check_events(path)
        path.unlink()


def _check(state: HookState) -> None:
    # The victim makes every field of an operation from one number.
    for op in (*state.recent, *state.in_flight):
        assert op.size_bytes == 3 * op.seq
        assert op.name == ("sgemm" if op.seq % 2 else "allreduce")
        assert op.start_ns <= (op.end_ns or state.now_ns) <= state.now_ns


def _check_events(path: Path) -> None:
    """All that the ring can hold is there, whole and in order, but for one torn by the kill."""
    reader = EventReader(path)
    batch = reader.drain()
    reader.close()
    numbers = batch.rows["seq"].astype(int)
    begun = len(numbers) + batch.lost
    assert len(numbers) >= min(begun, layout.EVENT_COUNT) - 1
    # The victim's even numbers are collectives, from 2 on.
    assert numbers.tolist() == [2 * int(ticket) for ticket in batch.rows["ticket"]]
    assert (batch.rows["size_bytes"].astype(int) == 3 * numbers).all()
    assert (batch.rows["flops"].astype(int) == 7 * numbers).all()
