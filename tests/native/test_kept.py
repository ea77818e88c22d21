"""What is compiled is kept: one run makes it, whatever it depends on makes it anew."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.native import kept

pytestmark = pytest.mark.native
SOURCE = "int main(void) { return CODE; }\n"


class Compiler:
    """The real one behind a script, which notes that it was called to compile."""

    def __init__(self, folder: Path) -> None:
        self.calls, self.path = folder / "calls", folder / "cc"
        self.calls.write_text("")
        script = f'case "$*" in *" -o "*) echo >>{self.calls} ;; esac\nexec cc "$@"\n'
        self.path.write_text(f"#!/bin/sh\n{script}")
        self.path.chmod(0o700)

    @property
    def compiled(self) -> int:
        return len(self.calls.read_text().splitlines())


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiler]:
    """With nothing kept yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    forget()
    yield Compiler(tmp_path)
    forget()


def forget() -> None:
    """As a new run."""
    for known in (kept._home, kept._digest_of_sources, kept._facts_of_compiler):
        known.cache_clear()
    kept._remove_unused.cache_clear()


def source(folder: Path, text: str = SOURCE) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "program.c").write_text(text)
    return folder / "program.c"


def code_of(program: Path) -> int:
    return subprocess.run([str(program)], timeout=20, check=False).returncode


def test_a_second_run_compiles_nothing(tmp_path: Path, compiler: Compiler) -> None:
    for run in ("one", "two"):
        folder = tmp_path / run
        program = kept.compiled(str(compiler.path), folder / "made", [source(folder)], "-DCODE=3")
        assert code_of(program) == 3
        forget()
    assert compiler.compiled == 1
    home = tmp_path / "cache" / "relkit-tests"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    # A test may write to what it has been given.
    program.write_bytes(b"")
    again = kept.compiled(str(compiler.path), program, [source(folder)], "-DCODE=3")
    assert code_of(again) == 3


def test_whatever_is_read_makes_it_anew(
    tmp_path: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(text: str = SOURCE, flag: str = "-DCODE=3") -> int:
        forget()
        program = kept.compiled(
            str(compiler.path), tmp_path / "made", [source(tmp_path / "s", text)], flag
        )
        return code_of(program)

    assert (made(), made(flag="-DCODE=4")) == (3, 4)
    assert made("int main(void) { return 5; }\n") == 5
    assert compiler.compiled == 3
    # A compiler that is upgraded, and a header below native/.
    os.utime(compiler.path, (1, 1))
    made()
    monkeypatch.setattr(kept, "NATIVE", tmp_path / "native")
    monkeypatch.setattr(kept, "ROOT", tmp_path)
    monkeypatch.setattr(kept, "__file__", str(tmp_path / "kept.py"))
    (tmp_path / "native").mkdir()
    for text in ("one", "two"):
        (tmp_path / "native" / "a.h").write_text(text)
        made()
    monkeypatch.setenv("CPATH", str(tmp_path))
    made()
    assert compiler.compiled == 7
    made()
    assert compiler.compiled == 7


def test_what_names_a_file_of_this_run_is_not_kept(tmp_path: Path, compiler: Compiler) -> None:
    for _ in range(2):
        flags = ("-DCODE=0", f"-Wl,-rpath,{tmp_path}")
        kept.compiled(str(compiler.path), tmp_path / "made", [source(tmp_path)], *flags)
    assert compiler.compiled == 2
    assert list(kept._home().iterdir()) == []


def test_runs_at_once_compile_it_once(tmp_path: Path, compiler: Compiler) -> None:
    def run(number: int) -> Path:
        folder = tmp_path / str(number)
        return kept.compiled(str(compiler.path), folder / "made", [source(folder)], "-DCODE=7")

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(run, range(8)))
    # Not before all are written: a child that is just being forked has them open as well.
    assert [code_of(program) for program in made] == [7] * 8
    assert compiler.compiled == 1


def test_what_does_not_compile_is_not_kept(tmp_path: Path, compiler: Compiler) -> None:
    for _ in range(2):
        with pytest.raises(AssertionError, match="CODE"):
            kept.compiled(str(compiler.path), tmp_path / "made", [source(tmp_path)])
    assert compiler.compiled == 2


def test_what_nobody_has_used_for_long_goes(
    tmp_path: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(part: str) -> Path:
        forget()
        return kept.kept(str(compiler.path), [part], lambda folder: (folder / "a").write_text("1"))

    monkeypatch.setattr(kept, "_MOST_BYTES", 2)
    first, second, third = made("first"), made("second"), made("third")
    assert all(each.is_dir() for each in (first, second, third))
    for age_s, each in ((9e5, second), (8e5, first)):
        at = each.stat().st_mtime - age_s
        os.utime(each, (at, at))
    fourth = made("fourth")
    assert [each.is_dir() for each in (first, second, third, fourth)] == [False, False, True, True]


def test_a_home_that_cannot_be_written_to(
    tmp_path: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(kept, "ROOT", tmp_path)
    forget()
    assert kept._home() == tmp_path / "build" / "tests-c"
