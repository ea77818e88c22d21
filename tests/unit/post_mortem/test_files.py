"""What a worker has left in files: its last lines, its traceback, its core file."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from relkit.post_mortem.collector import (
    NO_DEATHS,
    HostDeaths,
    WorkerFiles,
    last_output,
    tail,
    traceback_of,
)
from relkit.post_mortem.core_file import core_names, dumped_core, find_core, stack_of
from relkit.post_mortem.kernel_log import KernelLog
from relkit.post_mortem.model import MAX_LINE_CHARS, DeathEvidence, evidence_from_json
from relkit.process.bounded_child import find_tool
from tests.patience import PATIENCE


def test_the_last_lines_and_nothing_that_a_terminal_acts_upon(tmp_path: Path) -> None:
    path = tmp_path / "stderr.log"
    path.write_bytes(b"".join(b"line %d\n" % i for i in range(5000)) + b"\n\x1b[2Jend\xff\n\n")
    lines = tail(path)
    assert len(lines) == 20
    assert lines[-2:] == ("line 4999", "\u241b[2Jend\ufffd")


def test_a_line_without_end_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "stderr.log"
    path.write_text("x" * 1_000_000)
    assert tail(path) == ()
    path.write_text("x" * 10_000)
    assert [len(line) for line in tail(path)] == [MAX_LINE_CHARS]


def test_what_cannot_be_read_is_nothing(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, tmp_path / "none", Path("/dev/zero")):
        assert tail(path) == ()
        assert traceback_of(path) == ()


def error_file(folder: Path, content: object) -> Path:
    path = folder / "error.json"
    path.write_text(json.dumps(content))
    return path


def test_the_traceback_of_torchs_error_file(tmp_path: Path) -> None:
    callstack = "Traceback (most recent call last):\n  File 'a.py'\nValueError: bad batch\n"
    content = {"message": {"message": "ValueError", "extraInfo": {"py_callstack": callstack}}}
    errors = error_file(tmp_path, content)
    assert traceback_of(errors)[-2:] == ("  File 'a.py'", "ValueError: bad batch")
    stderr = tmp_path / "stderr.log"
    assert last_output(stderr, errors)[1] == str(errors)
    stderr.write_text("the end\n")
    assert last_output(stderr, errors) == (("the end",), str(stderr))
    assert last_output(None, None) == ((), "")


@pytest.mark.parametrize(
    "content",
    [None, [], {"message": 3}, {"message": {"extraInfo": []}},
     {"message": {"extraInfo": {"py_callstack": 7}}}],
)  # fmt: skip
def test_an_error_file_of_another_form_has_no_traceback(tmp_path: Path, content: object) -> None:
    assert traceback_of(error_file(tmp_path, content)) == ()


@pytest.mark.parametrize(
    ("pattern", "uses_pid", "names"),
    [
        ("core", False, "core"),
        ("core", True, "core.711"),
        ("core.%p", True, "core.711"),
        ("/var/crash/%e-%p-%h-%t", False, "/var/crash/*-711-n3-*"),
        ("a%%[b]%P", True, "a%[[]b[]]*"),
        # "**" would be all folders below, or a ValueError.
        ("/cores/%e%t", False, "/cores/*"),
        ("|/usr/lib/systemd/systemd-coredump %P", False, ""),
        ("", False, ""),
    ],
)
def test_the_name_of_a_core_file(pattern: str, uses_pid: bool, names: str) -> None:
    assert core_names(pattern, uses_pid, 711, "n3") == names


def _may_dump_core() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.mark.timeout(60 * PATIENCE)
def test_a_crash_leaves_a_core_file_with_a_stack(tmp_path: Path) -> None:
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    began = time.time()
    child = subprocess.Popen(
        [sys.executable, "-c", "import ctypes; ctypes.string_at(0)"],
        cwd=tmp_path,
        preexec_fn=_may_dump_core,
    )
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    told = HostDeaths(dict).evidence(0, child.pid)
    dumped = dumped_core(child.pid)
    child.wait()
    assert told.core == ""  # not in our own folder
    assert not dumped_core(child.pid)
    if pattern.startswith("|") or "/" in pattern:
        return
    assert dumped
    core = find_core(child.pid, (tmp_path,), began - 1)
    assert core is not None
    assert core.parent == tmp_path
    assert find_core(child.pid, (tmp_path,), time.time() + 60) is None
    if find_tool("gdb"):
        stack = stack_of(core, 40 * PATIENCE)
        assert any("strlen" in line for line in stack[:1]), stack
        assert stack_of(core, 0.001) == ()


def test_all_of_it_together(tmp_path: Path) -> None:
    stderr = tmp_path / "stderr.log"
    stderr.write_text("the end\n")
    logs = [KernelLog(((5, "old: Out of memory: Killed process 7 (x)"),))]
    deaths = HostDeaths(
        lambda: {2: WorkerFiles(stderr)}, kernel_log=lambda: logs[-1], kernels_pids=True
    )
    deaths.look([1])
    fresh = "Out of memory: Killed process 7 (python3) total-vm:1kB"
    logs.append(KernelLog((*logs[0].lines, (6, fresh)), "a problem"))
    told = deaths.evidence(2, 7)
    assert told.kernel_lines == (fresh,)
    assert told.kernel_log == "a problem"
    assert told.output == ("the end",)
    assert told.output_source == str(stderr)
    assert deaths.evidence(3, 7).output == ()
    # Where the log did not end at the start is not known: its lines may be old ones.
    unread = [KernelLog(problem="not at its end")]
    deaths = HostDeaths(dict, kernel_log=lambda: unread[-1])
    unread.append(logs[-1])
    assert deaths.evidence(2, 7) == DeathEvidence(kernel_log="not at its end")
    assert NO_DEATHS.evidence(2, 7) == DeathEvidence(kernel_log="not asked")


def test_in_a_container_a_process_of_the_host_with_its_number_is_not_taken_for_it() -> None:
    logs = [KernelLog()]
    deaths = HostDeaths(dict, kernel_log=lambda: logs[-1], kernels_pids=False)
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=python3, GPU has fallen off the bus."
    logs.append(KernelLog(((5, "Out of memory: Killed process 7 (x)"), (6, xid))))
    told = deaths.evidence(2, 7)
    assert told.kernel_lines == (xid,)
    assert told.kernel_log.startswith("in a container")


def test_evidence_travels_as_json_and_hostile_json_does_no_harm() -> None:
    told = DeathEvidence("/a", 1, 2, 3, ("k",), "p", ("o",), "f", "c", ("s",))
    assert evidence_from_json(json.loads(json.dumps(asdict(told)))) == told
    assert evidence_from_json(None) is None
    assert evidence_from_json([1]) is None
    hostile = {
        "cgroup": 7, "oom_kills": -1, "memory_limit_bytes": 1e9, "memory_peak_bytes": True,
        "kernel_lines": "abc", "output": [1, "\x1b]0;x\x07", *["y" * 9999] * 100],
        "core": {"a": 1},
    }  # fmt: skip
    safe = evidence_from_json(hostile)
    assert safe is not None
    assert (safe.cgroup, safe.oom_kills, safe.memory_limit_bytes) == ("", 0, 0)
    assert safe.kernel_lines == ()
    assert len(safe.output) == 40
    assert max(map(len, safe.output)) == MAX_LINE_CHARS
