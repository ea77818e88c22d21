"""Collectors as child processes: deadlines, output, and targets set going again."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from relkit.errors import CaptureFailed
from relkit.process import procfs
from relkit.process.bounded_child import find_tool, run_child
from relkit.stacks.engines import pyspy, refusal
from relkit.stacks.engines.pyspy import PySpyEngine
from relkit.stacks.engines.pyspy_json import parse
from relkit.stacks.engines.refusal import explain
from relkit.stacks.engines.tracing import only_tracer, run_guarded
from tests.native.capture.targets import BEATING, is_stopped, locked, running, still_beats, target


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_child_past_its_deadline_is_killed_with_its_own_children() -> None:
    began = time.monotonic()
    code = "import subprocess; subprocess.run(['sleep', '60'])"
    result = run_child(_python(code), 1.0)
    assert result.timed_out
    assert time.monotonic() - began < 10


def test_much_output_neither_blocks_nor_is_lost() -> None:
    code = "import sys; sys.stdout.write('x' * (3 << 20)); sys.stderr.write('why'); sys.exit(7)"
    result = run_child(_python(code), 30)
    assert (len(result.stdout), result.stderr, result.returncode) == (3 << 20, "why", 7)
    assert not result.timed_out


def test_a_collector_does_not_carry_the_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/no/such/library.so")
    result = run_child(_python("import os; print(os.environ.get('LD_PRELOAD'))"), 30)
    assert (result.stdout, result.stderr) == (b"None\n", "")


def test_an_old_python_or_kernel_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.delattr(os, "pidfd_open")
    assert run_child(_python("print('seen')"), 30).stdout == b"seen\n"
    assert run_child(_python("import time; time.sleep(60)"), 0.5).timed_out


def test_a_missing_program_is_an_error() -> None:
    assert find_tool("no-such-collector-anywhere") is None
    with pytest.raises(FileNotFoundError):
        run_child(["/no/such/program"], 1)


@pytest.mark.parametrize("ending", ["time.sleep(60)", "sys.exit(3)", "os.kill(os.getpid(), 9)"])
def test_a_collector_that_leaves_its_target_stopped_is_cleaned_up_after(ending: str) -> None:
    with running(BEATING) as process:
        code = f"import os, sys, time; os.kill({process.pid}, 19); {ending}"
        with pytest.raises(CaptureFailed, match="set going again"):
            run_guarded("careless", process.pid, _python(code), 1.0)
        assert not is_stopped(process.pid)
        assert still_beats(process)


def test_a_collector_that_ends_well_is_not_meddled_with() -> None:
    with running(BEATING) as process:
        code = f"import os; os.kill({process.pid}, 19); print('done')"
        assert run_guarded("good", process.pid, _python(code), 10).stdout == b"done\n"
        assert is_stopped(process.pid)


def test_the_lock_waits_and_then_gives_up() -> None:
    with (
        only_tracer(1, 1),
        pytest.raises(CaptureFailed, match="another relkit is tracing process 1"),
        only_tracer(1, 0.1),
    ):
        pass
    with only_tracer(1, 1):
        pass


def test_where_reading_a_running_process_fails_it_is_stopped_for_the_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = tmp_path / "py-spy"
    real = find_tool("py-spy")
    stand_in.write_text(
        f'#!/bin/sh\ncase "$*" in *nonblocking*) echo "Error: torn" >&2; exit 1;; esac\n'
        f'exec {real} "$@"\n'
    )
    stand_in.chmod(0o700)
    monkeypatch.setattr(pyspy, "pyspy_path", lambda: str(stand_in))
    with locked() as process:
        result = PySpyEngine().python(target(process.pid), 20)
        assert not is_stopped(process.pid)
        assert procfs.tracer(process.pid) == 0
    assert sorted(thread.name for thread in result.threads) == ["MainThread", "my-loader"]
    assert any("was stopped while being read" in note for note in result.notes)


@pytest.mark.parametrize("output", [b"", b"{", b"{}", b"[1]", b'[{"frames": 3}]', b"\xff\xfe"])
def test_what_is_not_py_spys_json_is_refused(output: bytes) -> None:
    with pytest.raises(CaptureFailed):
        parse(output)


def test_odd_values_in_py_spys_json_are_survived() -> None:
    ((thread, frames),) = parse(
        b'[{"os_thread_id": null, "thread_name": null, "frames": [{"name": null}, 7]}]'
    )
    assert (thread.os_thread_id, thread.name) == (0, "")
    assert [item.frame.func for item in frames] == ["??"]


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        ("", "as that process's user or as root"),
        ("0", "as that process's user or as root"),
        ("1", "ptrace_scope is 1, so being the same user is not enough"),
    ],
)
def test_who_may_read_a_process_depends_on_the_kernel(
    monkeypatch: pytest.MonkeyPatch, scope: str, words: str
) -> None:
    monkeypatch.setattr(refusal, "_yama_scope", lambda: scope)
    assert words in refusal.no_rights(7)


def test_refusals_say_what_to_do() -> None:
    with locked() as process:
        denied = explain("py-spy", process.pid, "Error: Permission Denied: Try running again")
        other = explain("py-spy", process.pid, "Error: Failed to find python version from target")
        unknown = explain("py-spy", process.pid, "\nStack backtrace:\n")
    gone = explain("py-spy", process.pid, "Error: Permission denied (os error 13)")
    assert "CAP_SYS_PTRACE" in denied
    assert "musl" in other
    assert unknown == "py-spy: Stack backtrace:"
    assert gone == f"py-spy: process {process.pid} ended before it could be read"
