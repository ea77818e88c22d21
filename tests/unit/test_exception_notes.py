"""The exception that ends a rank's script is left to the launcher, and changes nothing for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from relkit.bootstrap import bootstrap_environment
from relkit.post_mortem.raised_note import RaisedNote, raised_note
from relkit.process.identity import own_namespace

# More than the kernel gives: nobody has such a number.
GONE = 1 << 22


def ended(
    script: Path, folder: Path | None, *arguments: str
) -> tuple[subprocess.CompletedProcess[str], int]:
    """A rank of that script, run to its end, and its process id."""
    base = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PYTHONPATH")}
    if folder is not None:
        base |= {"RANK": "0", "RELKIT_SOCKET_DIR": str(folder), **bootstrap_environment({})}
    command = [sys.executable, *(arguments or [str(script)])]
    process = subprocess.Popen(
        command, env=base, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=script.parent,
    )  # fmt: skip
    out, err = process.communicate(timeout=50)
    return subprocess.CompletedProcess(command, process.returncode, out, err), process.pid


def noted(tmp_path: Path, text: str, *arguments: str) -> tuple[str, str] | None:
    """What is noted of a script, which otherwise ends as it does without relkit."""
    script, folder = tmp_path / "train.py", tmp_path / "notes"
    folder.mkdir()
    script.write_text(text)
    plain, _ = ended(script, None, *arguments)
    watched, pid = ended(script, folder, *arguments)
    assert (watched.returncode, watched.stdout, watched.stderr) == (
        plain.returncode, plain.stdout, plain.stderr,
    )  # fmt: skip
    note = raised_note(folder, pid)
    return (note.error, note.place) if note.error else None


RAISED = {
    "import not_there": ("ModuleNotFoundError: No module named 'not_there'", 1),
    "x = 1\nraise ValueError('bad\\nbatch')": ("ValueError: bad", 2),
    "def f():\n  return {}['k']\nf()": ("KeyError: 'k'", 2),
    "assert False": ("AssertionError", 1),
    "open('none')": ("FileNotFoundError: [Errno 2] No such file or directory: 'none'", 1),
    "import os\nos.rename('none', 'other')": (
        "FileNotFoundError: [Errno 2] No such file or directory: 'none' -> 'other'", 2,
    ),
    "try:\n  1 / 0\nexcept ZeroDivisionError as e:\n  raise RuntimeError('x') from e": (
        "RuntimeError: x", 4,
    ),
    "class Mine(Exception):\n  pass\nraise Mine('of mine')": ("Mine: of mine", 3),
    "import json\njson.loads('{')": ("json.decoder.JSONDecodeError: Expecting property name "
        "enclosed in double quotes: line 1 column 2 (char 1)", None),
    "x = (\n": ("SyntaxError: '(' was never closed", 1),
    "import sys\nsys.excepthook = lambda *_: print('mine')\nraise OSError('x')": ("OSError: x", 3),
    "import os\nos.environ.clear()\nraise ValueError('x')": ("ValueError: x", 3),
    # What it says itself is its own code, which may do anything: it is not asked twice.
    "class Mine(Exception):\n  def __str__(self):\n    print('asked')\n    return 'x'\n"
    "raise Mine": ("Mine", 5),
    "class Text(str):\n  def __str__(self):\n    print('asked')\n    return 'x'\n"
    "raise ValueError(Text())": ("ValueError", 5),
    "class Mine(OSError):\n  filename = property(lambda s: print('asked'))\nraise Mine(1, 'x')": (
        "Mine: [Errno 1] x", 3,
    ),
    "class Mine(Exception):\n  __class__ = property(lambda s: print('asked'))\n"
    "  args = property(lambda s: print('asked'))\nraise Mine('x')": ("Mine: x", 4),
    "raise ValueError('\\udc80')": (r"ValueError: \udc80", 1),
}  # fmt: skip


@pytest.mark.parametrize("text", RAISED)
def test_what_ended_the_script_is_noted(tmp_path: Path, text: str) -> None:
    error, line = RAISED[text]
    told = noted(tmp_path, text)
    assert told is not None
    assert told[0] == error
    assert line is None or told[1] == f"{tmp_path / 'train.py'}:{line}"


NOT_RAISED = {
    "an end that was asked for": "import sys\nsys.exit(2)",
    "an end with a message": "import sys\nsys.exit('no such data')",
    "wrong options": "import argparse\nargparse.ArgumentParser(prog='x').parse_args(['--no'])",
    "no end to speak of": "import os\nos._exit(3)",
    "a handled exception": "try:\n  1 / 0\nexcept ZeroDivisionError:\n  pass\nraise SystemExit(1)",
    "one of a thread": "import sys, threading\nthreading.excepthook = lambda _: None\n"
    "t = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()\nsys.exit(1)",
    "one of a child": "import os, sys\npid = os.fork()\nif not pid:\n"
    "  sys.excepthook = lambda *_: None\n  1 / 0\n"
    "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
    "one of a program that it starts": "import subprocess, sys\nsys.exit(subprocess.run("
    "[sys.executable, '-c', '1 / 0'], stderr=subprocess.DEVNULL).returncode)",
    "one of a callback, that C has printed": "import sys\ndef callback():\n  1 / 0\n"
    "try:\n  callback()\nexcept ZeroDivisionError as error:\n  sys.last_value = error\n"
    "  sys.last_traceback = error.__traceback__.tb_next\nsys.exit(1)",
    "something strange in its place": "import sys\nsys.last_value = 5\nsys.last_traceback = 'x'\n"
    "sys.exit(1)",
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_RAISED)
def test_of_other_ends_nothing_is_noted(tmp_path: Path, case: str) -> None:
    assert noted(tmp_path, NOT_RAISED[case]) is None


def test_a_module_as_the_script(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part/__init__.py").write_text("")
    (tmp_path / "part/main.py").write_text("import sys\nraise ValueError(len(sys.argv))\n")
    told = noted(tmp_path, "", "-m", "part.main", "x")
    assert told == ("ValueError: 2", f"{tmp_path / 'part/main.py'}:2")


def test_a_folder_that_has_gone_changes_nothing(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise ValueError('x')")
    gone = tmp_path / "gone"
    (plain, _), (watched, pid) = ended(script, None), ended(script, gone)
    assert (watched.returncode, watched.stderr) == (plain.returncode, plain.stderr)
    assert raised_note(gone, pid) == RaisedNote()


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"only words", b"x\0y\0z", b"a" * 70_000, b"\xff\0\xff"]
)
def test_what_somebody_else_has_written_there(tmp_path: Path, data: bytes) -> None:
    (tmp_path / f"{GONE}.{own_namespace()}.raised").write_bytes(data)
    note = raised_note(tmp_path, GONE)
    assert note.error.isprintable()
    assert note.place.isprintable()
    assert (note == RaisedNote()) == (data != b"\xff\0\xff")


def test_notes_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"{GONE}.{own_namespace()}.raised")
    (tmp_path / f"{GONE + 1}.{own_namespace()}.raised").mkdir()
    assert [raised_note(tmp_path, GONE + more) for more in range(3)] == [RaisedNote()] * 3
    assert raised_note(None, 1) == RaisedNote()


@pytest.mark.root
def test_ranks_of_one_number_leave_a_note_each_and_nobody_elses(tmp_path: Path) -> None:
    """Each is process 1 of a PID namespace of its own; process 1 of this one has raised nothing."""
    script = tmp_path / "train.py"
    script.write_text("raise ValueError('x')")
    base = {**os.environ, "RANK": "0", "RELKIT_SOCKET_DIR": str(tmp_path)}
    for _ in range(2):
        subprocess.run(
            ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, script],
            env=base | bootstrap_environment({}), capture_output=True, timeout=50, check=False,
        )  # fmt: skip
    assert len(list(tmp_path.glob("1.*raised"))) == 2
    assert raised_note(tmp_path, 1) == RaisedNote()
