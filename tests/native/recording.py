"""Processes that run under the hook, and the C that tests compile."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from relkit.hook.environment import worker_environment
from relkit.hook.model import HookState
from relkit.hook.reader import read_state, state_files
from tests.native.kept import NATIVE, compiled

CORE = sorted((NATIVE / "src" / "core").glob("*.c"))
# Of the file system that `small_folder` is: less than a recorder takes.
SMALL_FOLDER_BYTES = 256 << 10

# The first lines of a Python victim: `fake` is the stand-in for libtorch_cpu.so, loaded late and
# privately, as PyTorch is.
PREAMBLE = """
import ctypes, os, sys, threading, time
def load():
    fake = ctypes.CDLL(os.environ["FAKE_TORCH"])
    for gemms in (fake.fake_gemms, fake.fake_small_gemms):
        gemms.argtypes, gemms.restype = [ctypes.c_long], ctypes.c_double
    fake.fake_collectives.argtypes = [
        ctypes.c_int, ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_long]
    return fake
def tell(*words):
    print(*words, flush=True)
"""


def c_compiler() -> str:
    """The system's, or the user's choice."""
    return os.environ.get("CC") or shutil.which("cc") or "gcc"


def compile_c(output: Path, sources: Sequence[Path], *flags: str) -> Path:
    """Compile with the system's C compiler, warnings as errors, unless it is kept."""
    always = ("-std=c11", "-g", "-Wall", "-Wextra", "-Werror", "-pthread")
    folders = (f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'src'}")
    return compiled(c_compiler(), output, sources, *always, *folders, *flags)


@dataclass(frozen=True, slots=True)
class Recording:
    """A folder for recorder files, and the environment that makes a process write there."""

    folder: Path
    fake_torch: Path
    extra: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        base = {**os.environ, "FAKE_TORCH": str(self.fake_torch), **self.extra}
        return {**base, **worker_environment(self.folder, base)}

    def run(self, code: str, *arguments: str, **variables: str) -> str:
        """Run a Python victim to its end; its output."""
        done = subprocess.run(
            [sys.executable, "-c", PREAMBLE + code, *arguments],
            env={**self.environment(), **variables},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-2000:]}"
        return done.stdout

    @contextmanager
    def running(self, code: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
        """A Python victim that has said "up"; it is killed at the end."""
        command = [sys.executable, "-c", PREAMBLE + code]
        with process(command, {**self.environment(), **variables}) as victim:
            assert victim.stdout is not None
            assert victim.stdout.readline() == "up\n"
            yield victim

    def path(self, pid: int) -> Path:
        return self.folder / f"{pid}.rkhook"

    def state(self, pid: int) -> HookState:
        return read_state(self.path(pid))

    def only_state(self) -> HookState:
        (path,) = state_files(self.folder)
        return read_state(path)


def answer_of(victim: subprocess.Popen[str], words: str = "go\n") -> str:
    """Tell a victim something; the line that it says to that."""
    assert victim.stdin is not None
    assert victim.stdout is not None
    victim.stdin.write(words)
    victim.stdin.flush()
    return victim.stdout.readline()


@contextmanager
def process(command: Sequence[str], env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A child with pipes that is dead and reaped at the end."""
    with subprocess.Popen(
        command, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            yield child
        finally:
            child.kill()
