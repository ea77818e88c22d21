"""Asks a tool in a fork of this process: CPU time without its start, and its end is its own."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from benchmarks.verdicts.adapters.model import Adapter, Said

_LOOK_S = 0.002
_LIMIT_S = 60.0
NO_ANSWER = Said((), "", "")


@dataclass(frozen=True, slots=True)
class Asked:
    """What came back.

    Args:
        said: nothing where the tool failed; error: how it did, "" where it did not.
        cpu_s: that it used.
    """

    said: Said
    error: str
    cpu_s: float


def ask(adapter: Adapter, folder: Path) -> Asked:
    """The tool's answer on a folder."""
    with tempfile.TemporaryDirectory() as kept:
        answer, output = Path(kept) / "answer.json", Path(kept) / "output.txt"
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _judge(adapter, folder, answer, output)
        code, cpu_s = _end_of(pid)
        if code == 0:
            plain = json.loads(answer.read_text())
            return Asked(Said(**plain), "", cpu_s)
        lines = output.read_text(errors="replace").strip().splitlines()
        return Asked(NO_ANSWER, (lines or [f"exit code {code}"])[-1][:200], cpu_s)


def _judge(adapter: Adapter, folder: Path, answer: Path, output: Path) -> NoReturn:
    code = 1
    try:
        written = os.open(output, os.O_CREAT | os.O_WRONLY, 0o600)
        os.dup2(written, 1)
        os.dup2(written, 2)
        answer.write_text(json.dumps(asdict(adapter.judge(folder))))
        code = 0
    except BaseException:  # noqa: BLE001 (whatever a tool ends in)
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end_of(pid: int) -> tuple[int, float]:
    """Exit code and CPU seconds of a child, which is ended after the limit."""
    end_s = time.monotonic() + _LIMIT_S
    while True:
        done, status, used = os.wait4(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
        if time.monotonic() > end_s:
            os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_S)
