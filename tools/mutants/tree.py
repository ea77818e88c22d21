"""A copy of the repository in which one break after the other is tried."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from relkit.hook.locate import hook_library
from tools.mutants.model import Break
from tools.mutants.pytest_server import NoEnd, PytestServer

ROOT = Path(__file__).resolve().parents[2]
_VENV = Path(sys.prefix)
_BUILD_S = 300.0
# A script names its interpreter within these.
_HEAD_BYTES = 300
# pytest's exit codes: all passed, none is left by its options.
_PASSED, _NONE_CHOSEN = 0, 5
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - (.*)|$)", re.MULTILINE)
_TEST_S = 60
_OPTIONS = (
    "-q", "-x", "-rfE", "-p", "no:cacheprovider", f"--timeout={_TEST_S}",
)  # fmt: skip
# Which tests are run: those that start jobs, compilers or daemons take long, some far too long.
_HEAVY = "job or native or gdb or root or sshd"
_FAR_TOO_LONG = "long or browser or spark or slurm or fuzz"
LIGHT = f"not ({_HEAVY} or {_FAR_TOO_LONG})"
HEAVY = f"({_HEAVY}) and not ({_FAR_TOO_LONG})"
# Times of files that are changed, each once.
_TIMES = itertools.count(1_000_000_000)


class BadBreak(Exception):
    """A break that cannot be applied, or whose tests cannot be run."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The first test that failed.

    Args:
        test: its name for pytest; a file, where not even its imports went well.
        is_endless: whether it ran into its limit of time.
    """

    test: str
    is_endless: bool = False


@dataclass(frozen=True, slots=True)
class Tree:
    """A copy with an environment of its own: whatever a test starts runs the copy's relkit.

    Args:
        folder: holds the copy.
        pytests: runs its tests.
    """

    folder: Path
    pytests: PytestServer

    @classmethod
    def copied_to(cls, folder: Path, stopped: threading.Event) -> Tree:
        """Copy every file that git does not ignore, and the libraries that were built.

        Args:
            stopped: set from another thread, it ends the tests that are running here.
        """
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
        return cls(folder, PytestServer(folder / ".venv/bin/python", folder, stopped))

    @contextmanager
    def broken(self, change: Break) -> Iterator[None]:
        """Apply a break, and take it back.

        Raises:
            BadBreak: the C does not compile.
            NoEnd: compiling it takes too long.
        """
        path = self.folder / change.file
        whole = path.read_text(encoding="utf-8")
        self._write(path, change.source)
        is_native = change.file.startswith("native/")
        try:
            if is_native:
                self._build()
            yield
        finally:
            self._write(path, whole)
            if is_native:
                self._build()

    def _write(self, path: Path, source: str) -> None:
        path.write_text(source, encoding="utf-8")
        # Python knows a file from its compiled form by the second and the size; a compiler of C is
        # only asked where a source is the newer one.
        if path.suffix == ".py":
            os.utime(path, (next(_TIMES), next(_TIMES)))

    def first_failure(
        self, tests: Sequence[str], limit_s: float, marks: str = ""
    ) -> Failure | None:
        """Run tests up to the first that fails.

        Args:
            tests: pytest arguments; limit_s: for all of them.
            marks: LIGHT, HEAVY, or "" for all of them.

        Raises:
            BadBreak: pytest cannot run them.
            NoEnd: they take longer than the limit.
            KeyboardInterrupt: it was stopped.
        """
        with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as made:
            output = Path(made, "output")
            options = [*_OPTIONS, *(("-m", marks) if marks else ()), f"--basetemp={made}/tests"]
            code = self.pytests.run([*options, *tests], output, limit_s)
            text = output.read_text(encoding="utf-8", errors="replace")
        if code in (_PASSED, _NONE_CHOSEN):
            return None
        failure = _FAILURE.search(text)
        if failure is None:
            raise BadBreak(f"pytest cannot run {' '.join(tests)}:\n{text[-2000:]}")
        return Failure(failure[1], is_endless="Timeout" in (failure[2] or ""))

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
