"""What tests have compiled is kept from run to run, by all that the compiler has read.

A run that finds its programs below ~/.cache starts no compiler. Of runs that need the same one at
once the first makes it.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "native"
COMPILE_S = 120
# Beyond them, what has not been used for so long that no run can still be at it goes.
_MOST_BYTES = 256 << 20
_UNUSED_S = 3 * 3600.0
# What a compiler takes from its environment.
_VARIABLES = ("CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX")
# What it reads beside sources, and what it runs: a package that is upgraded changes one of them.
_READ = ("libc.a", "libc.so", "libgcc.a", "crt1.o", "libasan.so", "libubsan.so", "libtsan.so")
_RUN = ("cc1", "as", "ld", "collect2")
_HEADERS = "/usr/include/linux/version.h"
_ABSOLUTE = re.compile(r'(?:^-[IL]|(?<![\w.]))(/[^,:"]*)')


def compiled(compiler: str, output: Path, sources: Sequence[Path], *flags: str) -> Path:
    """Compile into a file, or copy what an earlier run has made of the same.

    Args:
        compiler: its command.
        output: made anew; in a folder that is kept, it is kept with that.
        sources: of those outside of native/ the name and the content count, not the folder.
        flags: where one names a file that may be another in the next run, nothing is kept.
    """
    command = [compiler, f"-ffile-prefix-map={ROOT}=.", *map(str, sources), *flags]

    def compile_into(file: Path) -> None:
        done = subprocess.run(
            [*command, "-o", str(file)],
            capture_output=True,
            text=True,
            timeout=COMPILE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    if output.is_relative_to(_home()) or any(_is_of_this_run(flag) for flag in flags):
        compile_into(output)
        return output
    parts = [*map(_named, sources), *(flag.replace(str(ROOT), ".") for flag in flags)]
    folder = kept(compiler, parts, lambda folder: compile_into(folder / "made"))
    output.unlink(missing_ok=True)
    return Path(shutil.copy(folder / "made", output))


def kept(compiler: str, parts: Iterable[str], make: Callable[[Path], object]) -> Path:
    """A folder that tests only read; it has the same path in every run.

    Args:
        compiler: its command.
        parts: beside native/, tests/native/*.py and the compiler, all that it depends on.
        make: called with the folder, unless a run has made it.
    """
    facts = [_digest_of_sources(), *_facts_of_compiler(compiler), *parts]
    key = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32]
    folder = _home() / key
    with _locked(key):
        if not folder.exists():
            making = folder.with_suffix(".making")
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir()
            make(making)
            making.rename(folder)
            _remove_unused()
        os.utime(folder)
    return folder


@functools.cache
def _home() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    # A home that cannot be written to is the case in builds of packages.
    for folder in (Path(base) / "relkit-tests", ROOT / "build" / "tests-c"):
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    raise AssertionError(f"what tests compile can be kept neither in {base} nor in {ROOT}/build")


@contextmanager
def _locked(key: str) -> Iterator[None]:
    with (_home() / f"{key}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@functools.cache
def _remove_unused() -> None:
    """Once a process; locks of a few bytes stay, as another run may wait at one."""
    folders = [path for path in _home().iterdir() if path.is_dir()]
    used = sorted((path.stat().st_mtime, path) for path in folders)
    sizes = {path: sum(file.stat().st_size for file in path.iterdir()) for path in folders}
    excess = sum(sizes.values()) - _MOST_BYTES
    for at, folder in used:
        if excess <= 0 or at > time.time() - _UNUSED_S:
            return
        shutil.rmtree(folder)
        excess -= sizes[folder]


def _named(source: Path) -> str:
    if source.is_relative_to(NATIVE):
        return str(source.relative_to(ROOT))
    return f"{source.name} {hashlib.sha256(source.read_bytes()).hexdigest()}"


def _is_of_this_run(flag: str) -> bool:
    """Whether it names a path that is neither below native/ nor of what is kept."""
    stable = (str(NATIVE), f"{_home()}/")
    return any(not path.startswith(stable) for path in _ABSOLUTE.findall(flag))


@functools.cache
def _digest_of_sources() -> str:
    """All that is below native/, and what says how tests compile it."""
    own = Path(__file__).parent.glob("*.py")
    ours = (path for path in own if not path.name.startswith("test_"))
    digest = hashlib.sha256()
    for path in (*sorted(NATIVE.rglob("*")), *sorted(ours)):
        if path.is_file():
            digest.update(f"{path.relative_to(ROOT)} {path.stat().st_size}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


@functools.cache
def _facts_of_compiler(compiler: str) -> list[str]:
    """Its version, and the time and size of each file of the system that it reads or runs."""

    def said(question: str) -> str:
        return subprocess.run(
            [compiler, question], capture_output=True, text=True, timeout=20, check=True
        ).stdout

    folders = re.findall(r"^(?:programs|libraries): =(.*)$", said("-print-search-dirs"), re.M)
    searched = [folder for line in folders for folder in line.split(":")]
    searched += os.environ.get("PATH", "").split(":")
    facts = [said("--version"), *(f"{name}={os.environ.get(name)}" for name in _VARIABLES)]
    files = [Path(shutil.which(compiler) or compiler), Path(_HEADERS)]
    files += [Path(folder) / name for name in (*_READ, *_RUN) for folder in searched]
    return [*facts, *map(_stamp, files)]


def _stamp(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:
        return ""
    return f"{path.resolve()} {found.st_size} {found.st_mtime_ns}"
