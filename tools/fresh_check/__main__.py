"""The README's demo and every test as root on a Debian machine that has nothing yet.

    make fresh-check                                    (make demo, then make test-all)
    make fresh-check FRESH_ARGS=demo
    make fresh-check FRESH_ARGS="test tests/native"     (only these tests)
    make fresh-check FRESH_ARGS=test-all                (every test)

A minimal Debian root is built (once a week; kept as a tarball), a clean clone of HEAD is put into
it, and the commands run there in namespaces of their own, on this host's network. How packages are
found (apt's sources, keys, proxies, pip's configuration) is taken from this host at run time.

Exit code 0 where all passed, 1 where a command failed, 3 where the root could not be made.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TextIO

from relkit.errors import EXIT_INTERRUPTED, EXIT_PROBLEM, EXIT_UNKNOWN, RelkitError
from tools.fresh_check.base_root import base_tarball, host_base, unpack
from tools.fresh_check.host_settings import HostSettings, read_host_settings
from tools.fresh_check.namespace import run_contained

_REPOSITORY = Path(__file__).resolve().parents[2]
_CHECKOUT = "root/relkit"  # in the fresh root
_HOSTNAME = "fresh"
_LIMITS_S = {"demo": 3600.0, "test": 10800.0, "test-all": 10800.0}
_SURROUNDINGS = {
    "HOME": "/root",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "TERM": "dumb",
}


@dataclass(frozen=True)
class Step:
    """A command that a fresh machine must pass.

    Args:
        name: demo, test or test-all.
        argv: the command, in the checkout.
        limit_s: how long it may take.
    """

    name: str
    argv: tuple[str, ...]
    limit_s: float


class Log:
    """A file and the terminal, line by line, with the time since the start."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.began = time.monotonic()

    def line(self, text: str) -> None:
        """Write one line to both."""
        minutes, seconds = divmod(int(time.monotonic() - self.began), 60)
        stamped = f"{minutes:3}:{seconds:02} {text}"
        print(stamped, flush=True)
        print(stamped, file=self._file, flush=True)


def steps(words: Sequence[str]) -> list[Step]:
    """The commands that the arguments select.

    Raises:
        ValueError: none of `demo`, `test PATHS` and `test-all`.
    """
    if not words:
        return [*steps(["demo"]), *steps(["test-all"])]
    name, *paths = words
    if name not in _LIMITS_S or (name != "test" and paths):
        raise ValueError(f"not `demo`, `test PATHS` or `test-all`: {' '.join(words)}")
    argv = ("make", name, *([f"TESTS={shlex.join(paths)}"] if paths else []))
    return [Step(name, argv, _LIMITS_S[name])]


def main() -> int:
    """Make the root, run the commands, say what came of it."""
    parser = argparse.ArgumentParser(
        prog="fresh-check", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "what",
        nargs="*",
        help="demo, test PATHS, or test-all; demo and test-all where nothing is named",
    )
    parser.add_argument("--rebuild", action="store_true", help="build the base root anew")
    parser.add_argument("--keep", action="store_true", help="leave the root folder for a look")
    options = parser.parse_args()
    try:
        wanted = steps(options.what)
    except ValueError as error:
        parser.error(str(error))
    if os.geteuid() != 0:
        print("fresh-check: needs root (namespaces, chroot). next: sudo make fresh-check")
        return EXIT_UNKNOWN
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relkit/fresh-check"
    cache.mkdir(parents=True, exist_ok=True)
    _remove_stale(cache)
    log_path = cache / time.strftime("%Y-%m-%d-%H%M%S.log")
    work = Path(tempfile.mkdtemp(prefix=f"run-{os.getpid()}-", dir=cache))
    with log_path.open("w", encoding="utf-8") as file:
        log = Log(file)
        log.line(f"log: {log_path}")
        try:
            code, sentence = _check(wanted, cache, work, log, rebuild=options.rebuild)
        except RelkitError as error:
            code, sentence = EXIT_UNKNOWN, f"not run: {error} next: {error.next_step}"
        except (OSError, subprocess.SubprocessError) as error:
            code, sentence = EXIT_UNKNOWN, f"not run: {type(error).__name__}: {error}"
        except KeyboardInterrupt:
            code, sentence = EXIT_INTERRUPTED, "interrupted"
        finally:
            if options.keep:
                log.line(f"kept: {work}")
            else:
                shutil.rmtree(work, ignore_errors=True)
        log.line(f"log: {log_path}")
        minutes = (time.monotonic() - log.began) / 60
        log.line(f"fresh-check: {sentence} in {minutes:.0f} min")
    return code


def _check(
    wanted: Sequence[Step], cache: Path, work: Path, log: Log, *, rebuild: bool
) -> tuple[int, str]:
    """(exit code, what the last line says) of all steps, up to the first that fails."""
    settings = read_host_settings(os.environ)
    tarball = base_tarball(
        host_base(settings.apt_options), cache, work,
        environment=settings.environment, rebuild=rebuild, each_line=log.line,
    )  # fmt: skip
    root = work / "root"
    unpack(tarball, root)
    settings.copy_into(root)
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost {_HOSTNAME}\n::1 localhost\n")
    (root / "etc/hostname").write_text(f"{_HOSTNAME}\n")
    log.line(f"clean clone of {_clone(root / _CHECKOUT, log)}")
    mounts = work / "mounts"
    mounts.write_text("".join(f"{folder}\n" for folder in settings.mounts), encoding="utf-8")
    for step in wanted:
        log.line(f"$ {shlex.join(step.argv)}")
        began = time.monotonic()
        code = _run(step, root, mounts, settings, log)
        log.line(f"{step.name}: exit code {code} after {(time.monotonic() - began) / 60:.1f} min")
        if code != 0:
            why = "took too long" if code == 124 else f"exit code {code}"
            return EXIT_PROBLEM, f"FAILED: make {step.name} ({why})"
    return 0, "passed"


def _run(step: Step, root: Path, mounts: Path, settings: HostSettings, log: Log) -> int:
    enter = Path(__file__).with_name("enter_root.sh")
    inside = f"cd /{_CHECKOUT} && {shlex.join(step.argv)}"
    return run_contained(
        ["sh", str(enter), str(root), _HOSTNAME, str(mounts), "sh", "-c", inside],
        environment={**_SURROUNDINGS, **settings.environment},
        limit_s=step.limit_s, each_line=log.line,
    )  # fmt: skip


def _clone(target: Path, log: Log) -> str:
    """Clone HEAD; says which commit that is."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], capture_output=True, text=True, timeout=300, check=True
        )
        return done.stdout.strip()

    changed = git("-C", str(_REPOSITORY), "status", "--porcelain").splitlines()
    if changed:
        log.line(f"not in it: {len(changed)} files that are not committed, such as {changed[0]}")
    commit = git("-C", str(_REPOSITORY), "rev-parse", "HEAD")
    git("clone", "-q", "--no-hardlinks", "--no-checkout", str(_REPOSITORY), str(target))
    git("-C", str(target), "checkout", "-q", "--detach", commit)
    # The clone knows nothing of this host.
    git("-C", str(target), "remote", "remove", "origin")
    return git("-C", str(target), "log", "-1", "--format=%h %s")


def _remove_stale(cache: Path) -> None:
    """Remove what a call that was killed has left; its processes and mounts went with it."""
    for folder in cache.glob("run-*"):
        pid = folder.name.split("-")[1]
        if not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
