"""A copy of the repository in which one break after the other is tried."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from relkit.hook.locate import hook_library
from tools.mutants.model import Break, Result

ROOT = Path(__file__).resolve().parents[2]
_VENV = Path(sys.prefix)
_LIMIT_S = 600.0
_BUILD_S = 300.0
# That pytest gets to end what its tests have started.
_TEARDOWN_S = 20.0
_POLL_S = 0.05
# A script names its interpreter within these.
_HEAD_BYTES = 300
# pytest's exit codes: all passed, some failed.
_PASSED, _FAILED = 0, 1
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", re.MULTILINE)


class BadBreak(Exception):
    """A break that cannot be applied, or whose tests cannot be run."""


class NoEnd(Exception):
    """Tests, or the compiler, that have not ended in time."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A copy with an environment of its own: whatever a test starts runs the copy's relkit.

    Args:
        folder: holds the copy.
        stopped: set from another thread, it ends the tests that are running here.
    """

    folder: Path
    stopped: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def copied_to(cls, folder: Path) -> Tree:
        """Copy every file that git does not ignore, and the libraries that were built."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        for name in filter(None, listed.stdout.split("\0")):
            path = ROOT / name
            if path.is_file() or path.is_symlink():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, folder / name, follow_symlinks=False)
        shutil.copytree(hook_library().parent, folder / "relkit" / "_lib")
        _link_environment(folder)
        return cls(folder)

    def attempt(self, change: Break) -> Result:
        """Apply a break, run its tests, and take it back."""
        began_s = time.monotonic()
        noticed_by = trouble = ""
        timed_out = False
        try:
            with self.broken(change):
                noticed_by = self.first_failure(change.tests, _LIMIT_S)
        except NoEnd:
            timed_out = True
        except BadBreak as error:
            trouble = str(error)
        return Result(change, time.monotonic() - began_s, noticed_by, trouble, timed_out)

    @contextmanager
    def broken(self, change: Break) -> Iterator[None]:
        """Apply a break, and take it back.

        Raises:
            BadBreak: the old text is not there exactly once, or the C does not compile.
            NoEnd: compiling it takes too long.
        """
        path = self.folder / change.file
        whole = path.read_text(encoding="utf-8")
        if (times := whole.count(change.old)) != 1:
            raise BadBreak(f"{change.title}: the old text is there {times} times")
        path.write_text(whole.replace(change.old, change.new), encoding="utf-8")
        is_native = change.file.startswith("native/")
        try:
            if is_native:
                self._build()
            yield
        finally:
            path.write_text(whole, encoding="utf-8")
            if is_native:
                self._build()

    def first_failure(self, tests: Sequence[str], limit_s: float) -> str:
        """Run tests up to the first that fails.

        Args:
            tests: pytest arguments; limit_s: for all of them.

        Returns:
            Its name; "" where all pass.

        Raises:
            BadBreak: pytest cannot run them.
            NoEnd: they take longer than the limit.
            KeyboardInterrupt: it was stopped.
        """
        # A file that is changed twice within a second could pass for its compiled form.
        environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
        with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as made:
            options = ["-q", "-x", "-rfE", "-p", "no:cacheprovider", f"--basetemp={made}/tests"]
            output = Path(made, "output")
            with output.open("wb") as stream:
                process = subprocess.Popen(
                    [str(self.folder / ".venv/bin/python"), "-m", "pytest", *options, *tests],
                    cwd=self.folder, env=environ, start_new_session=True,
                    stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT,
                )  # fmt: skip
            try:
                ended = self._wait(process.pid, limit_s)
            finally:
                _end(process)
            text = output.read_text(encoding="utf-8", errors="replace")
        if not ended:
            raise NoEnd(f"no end within {limit_s:.0f} s")
        if process.returncode == _PASSED:
            return ""
        failure = _FAILURE.search(text)
        if process.returncode != _FAILED or failure is None:
            raise BadBreak(f"pytest cannot run {' '.join(tests)}:\n{text[-2000:]}")
        return failure[1]

    def _wait(self, pid: int, limit_s: float) -> bool:
        end_s = time.monotonic() + limit_s
        while time.monotonic() < end_s:
            if _has_ended(pid):
                return True
            if self.stopped.wait(_POLL_S):
                raise KeyboardInterrupt
        return False

    def _build(self) -> None:
        # Its own folder, so that only what has changed is compiled again.
        build = self.folder / "build" / "native"
        lines = [["cmake", "-S", str(self.folder), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release"],
                 ["cmake", "--build", str(build)]]  # fmt: skip
        for line in lines[1 if (build / "CMakeCache.txt").exists() else 0 :]:
            try:
                done = subprocess.run(
                    line, capture_output=True, text=True, timeout=_BUILD_S, check=False
                )
            except subprocess.TimeoutExpired as error:
                raise NoEnd(f"{' '.join(line)}: no end within {_BUILD_S:.0f} s") from error
            if done.returncode != 0:
                raise BadBreak(f"{' '.join(line)}:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
        for built in build.rglob("librelkit_*.so"):
            shutil.copy2(built, self.folder / "relkit" / "_lib" / built.name)


def _has_ended(pid: int) -> bool:
    # It is not reaped, so that its process group keeps its number.
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, pid, options) is not None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End pytest where it still runs, and whatever a broken relkit has left in its group."""
    if not _has_ended(process.pid):
        process.send_signal(signal.SIGINT)
        end_s = time.monotonic() + _TEARDOWN_S
        while not _has_ended(process.pid) and time.monotonic() < end_s:
            time.sleep(_POLL_S)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _link_environment(folder: Path) -> None:
    """This environment once more, its packages by links; relkit is imported from the folder."""
    venv, packages = folder / ".venv", Path(sysconfig.get_path("purelib"))
    linked = venv / packages.relative_to(_VENV)
    shutil.copytree(
        _VENV,
        venv,
        symlinks=True,
        ignore=lambda parent, names: names if Path(parent) == packages else (),
    )
    for path in packages.iterdir():
        if not path.match("_editable_*relkit*"):
            (linked / path.name).symlink_to(path)
    (linked / "relkit.pth").write_text(f"{folder}\n")
    for path in [*venv.glob("bin/*"), venv / "pyvenv.cfg"]:
        if path.is_symlink() or not path.is_file():
            continue
        whole = path.read_bytes()
        if bytes(_VENV) in whole[:_HEAD_BYTES]:
            path.unlink()
            path.write_bytes(whole.replace(bytes(_VENV), bytes(venv)))
            path.chmod(0o755)
