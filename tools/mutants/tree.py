"""A copy of the repository in which things may be broken."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from relkit.hook.locate import hook_library
from tools.mutants.model import Break

ROOT = Path(__file__).resolve().parents[2]
_VENV = Path(sys.prefix)
_BUILD_S = 300.0
# In which a script names its interpreter.
_HEAD_BYTES = 300
# pytest's exit codes: all passed, some failed.
_PASSED, _FAILED = 0, 1
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class BadBreak(Exception):
    """A break that does not say what it breaks, or tests that cannot be run."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A copy with an environment of its own: whatever a test starts runs the copy's relkit.

    Args:
        folder: holds the copy.
    """

    folder: Path

    @classmethod
    def copied_to(cls, folder: Path) -> Tree:
        """Copy what git knows of, and the libraries that were built."""
        shutil.rmtree(folder, ignore_errors=True)
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

    @contextmanager
    def broken(self, change: Break) -> Iterator[None]:
        """Apply a break, and take it back.

        Raises:
            BadBreak: the old text is not there exactly once, or the C does not compile.
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

        Returns:
            Its name; "" where all pass.

        Raises:
            BadBreak: they cannot be collected.
        """
        python = str(self.folder / ".venv/bin/python")
        options = ["-q", "-x", "-rfE", "-p", "no:cacheprovider", f"--basetemp={self.folder}-pytest"]
        # A file that is changed twice within a second could pass for its compiled form.
        environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
        try:
            done = subprocess.run(
                [python, "-m", "pytest", *options, *tests], cwd=self.folder, env=environ,
                capture_output=True, text=True, timeout=limit_s, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"no end within {limit_s:.0f} s"
        if done.returncode not in {_PASSED, _FAILED}:
            raise BadBreak(f"{' '.join(tests)} cannot be run:\n{done.stdout[-2000:]}{done.stderr}")
        if done.returncode == _PASSED:
            return ""
        failures = _FAILURE.findall(done.stdout)
        if not failures or "::" not in failures[0]:
            raise BadBreak(f"{' '.join(tests)} cannot be collected:\n{done.stdout[-2000:]}")
        return str(failures[0])

    def _build(self) -> None:
        # Its own folder, so that only what has changed is compiled again.
        build = self.folder / "build" / "native"
        lines = [["cmake", "-S", str(self.folder), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release"],
                 ["cmake", "--build", str(build)]]  # fmt: skip
        for line in lines[1 if (build / "CMakeCache.txt").exists() else 0 :]:
            done = subprocess.run(
                line, capture_output=True, text=True, timeout=_BUILD_S, check=False
            )
            if done.returncode != 0:
                raise BadBreak(f"{' '.join(line)}:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
        for built in build.rglob("librelkit_*.so"):
            shutil.copy2(built, self.folder / "relkit" / "_lib" / built.name)


def _link_environment(folder: Path) -> None:
    """This environment once more, of hard links; relkit is imported from the folder."""
    venv = folder / ".venv"
    shutil.copytree(_VENV, venv, symlinks=True, copy_function=os.link)
    packages = venv / Path(sysconfig.get_path("purelib")).relative_to(_VENV)
    for path in packages.glob("_editable_*relkit*"):
        path.unlink()
    (packages / "relkit.pth").write_text(f"{folder}\n")
    for path in [*venv.glob("bin/*"), venv / "pyvenv.cfg"]:
        if path.is_symlink() or not path.is_file():
            continue
        whole = path.read_bytes()
        if bytes(_VENV) in whole[:_HEAD_BYTES]:
            path.unlink()
            path.write_bytes(whole.replace(bytes(_VENV), bytes(venv)))
            path.chmod(0o755)
