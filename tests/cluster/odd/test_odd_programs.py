"""`relkit launch` beside torchrun: the same output and exit code, whatever a program does.

Each program runs under both, in a folder of its own each time. One that this machine cannot run is
skipped by name.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.odd.programs import PROGRAMS, Odd
from tests.patience import PATIENCE
from tests.waiting import eventually

pytestmark = [pytest.mark.job, pytest.mark.long]

_TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
_RELKIT = (sys.executable, "-m", "relkit", "launch")
_MUSL = """
#include <stdio.h>
#include <stdlib.h>
int main(void) { printf("musl, rank %s\\n", getenv("RANK")); return 11; }
"""
_SITE = 'import sys\nprint("user\'s own", "torch" in sys.modules)\n'
# What the loader says of a library that it cannot load, and Python of what relkit runs before it.
_HARM = ("ld.so:", "Error relocating", "Error loading shared", "sitecustomize", "librelkit")


@dataclass(frozen=True, slots=True)
class Ran:
    """What is seen of a job."""

    code: int
    out: bytes
    err: bytes
    left: str


def _filled(text: str, paths: Mapping[str, str]) -> str:
    for name, path in paths.items():
        text = text.replace(f"{{{name}}}", path)
    return text


def _paths(folder: Path, odd: Odd) -> dict[str, str]:
    """Where things are that programs name in curly brackets; made where they are wanted."""
    named = " ".join((*odd.program, *odd.environ.values()))
    paths = {
        "python": sys.executable,
        "script": str(folder / "odd.py"),
        "site": str(folder / "site"),
    }
    (folder / "odd.py").write_text(odd.code)
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(_SITE)
    plain = folder / "plain"
    plain.write_text("echo no interpreter named\n")
    plain.chmod(0o755)
    paths |= {"plain": str(plain), "left": str(folder / "left")}
    for name, flags in (("musl", ()), ("musl_static", ("-static",))):
        if f"{{{name}}}" in named:
            source = folder / "musl.c"
            source.write_text(_MUSL)
            argv = ["musl-gcc", *flags, "-o", str(folder / name), str(source)]
            subprocess.run(argv, check=True, timeout=60)
            paths[name] = str(folder / name)
    return paths


def _command(odd: Odd, paths: Mapping[str, str]) -> list[str]:
    return [_filled(word, paths) for word in odd.program] or [paths["python"], paths["script"]]


def _folder(path: Path) -> Path:
    path.mkdir()
    # Anybody's to write to, as some run as somebody else.
    path.chmod(0o777)
    return path


def _launched(
    launcher: tuple[str, ...], folder: Path, command: list[str], odd: Odd, paths: Mapping[str, str]
) -> tuple[int, bytes, bytes]:
    """Exit code and output of a job of one rank."""
    environ = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "RELKIT_LAUNCH_TIMELINE_PATH": str(folder / "timeline"),
        # All of them below one script.
        "RELKIT_HOOK_FILES": "1000",
        **{name: _filled(value, paths) for name, value in odd.environ.items() if value},
    }
    for name, value in odd.environ.items():
        if not value:
            del environ[name]
    job = ["--standalone", "--nproc-per-node", "1"]
    job += ["--no-python", *command] if odd.program else command[1:]
    process = subprocess.Popen(
        [*odd.around, *launcher, *job],
        cwd=folder,
        env=environ,
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, err = process.communicate(odd.stdin, timeout=300 * PATIENCE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode, out, err


def _alone(launcher: tuple[str, ...], folder: Path, odd: Odd) -> Ran:
    """A program that the launcher itself starts."""
    paths = _paths(_folder(folder), odd)
    code, out, err = _launched(launcher, folder, _command(odd, paths), odd, paths)
    left = Path(paths["left"])
    if "LEFT" in odd.environ:
        eventually(lambda: left.exists() and left.read_text(), "what the script leaves")
    return Ran(code, out, err, left.read_text() if left.exists() else "")


def _gathered(launcher: tuple[str, ...], folder: Path) -> dict[str, Ran]:
    """All programs that need no launcher of their own, below one script that a launcher starts."""
    _folder(folder)
    lines, places = [], {}
    for number, (name, odd) in enumerate(PROGRAMS.items()):
        if odd.has_own_job or _why_not(odd):
            continue
        place = places[name] = folder / str(number)
        command = shlex.join(_command(odd, _paths(_folder(place), odd)))
        lines.append(f"cd {place}; {command} >out 2>err </dev/null; echo $? >code")
    script = folder / "all.sh"
    script.write_text("\n".join(lines))
    _, _, err = _launched(launcher, folder, ["sh", str(script)], Odd(program=("sh",)), {})
    assert all((place / "code").exists() for place in places.values()), err.decode()
    return {
        name: Ran(
            int((place / "code").read_text()),
            (place / "out").read_bytes(),
            (place / "err").read_bytes(),
            "",
        )
        for name, place in places.items()
    }


@pytest.fixture(scope="module")
def gathered(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Ran], dict[str, Ran]]:
    """Under torchrun and under relkit."""
    folder = tmp_path_factory.mktemp("gathered")
    return _gathered(_TORCHRUN, folder / "torchrun"), _gathered(_RELKIT, folder / "relkit")


def _why_not(odd: Odd) -> str:
    """Why this machine cannot run it; "" where it can."""
    named = " ".join((*odd.around, *odd.program))
    for word, program in (
        ("musl", "musl-gcc"),
        ("strace", "strace"),
        ("setpriv", "setpriv"),
        ("unshare", "unshare"),
    ):
        if word in named and shutil.which(program) is None:
            return f"{program} is not installed"
    return "needs root" if odd.needs_root and os.geteuid() != 0 else ""


def _names(*, own_job: bool) -> list[Any]:
    return [
        pytest.param(name, marks=[pytest.mark.root] if odd.needs_root else [])
        for name, odd in PROGRAMS.items()
        if odd.has_own_job == own_job
    ]


def _compare(there: Ran, here: Ran) -> None:
    said = here.err.decode(errors="replace")
    out = here.out.replace(b"/relkit/", b"/torchrun/")
    assert (here.code, out, here.left) == (there.code, there.out, there.left), said
    known = there.err.decode(errors="replace")
    new = [line for line in said.splitlines() if any(word in line for word in _HARM)]
    assert [line for line in new if line not in known] == []


@pytest.mark.parametrize("name", _names(own_job=True))
def test_it_does_as_under_torchrun(name: str, tmp_path: Path) -> None:
    odd = PROGRAMS[name]
    if why := _why_not(odd):
        pytest.skip(why)
    for each in (tmp_path, *tmp_path.parents[:3]):
        if each.owner() == tmp_path.owner():
            # Others have to come through.
            each.chmod(each.stat().st_mode | 0o011)
    _compare(
        _alone(_TORCHRUN, tmp_path / "torchrun", odd), _alone(_RELKIT, tmp_path / "relkit", odd)
    )


@pytest.mark.parametrize("name", _names(own_job=False))
def test_it_does_as_below_a_script_of_torchruns(
    name: str, gathered: tuple[dict[str, Ran], dict[str, Ran]]
) -> None:
    if why := _why_not(PROGRAMS[name]):
        pytest.skip(why)
    there, here = gathered
    _compare(there[name], here[name])
