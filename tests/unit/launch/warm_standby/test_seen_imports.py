"""What a worker notes of its imports, and what of it is believed and may be imported ahead."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from relkit.launch.warm_standby.seen_imports import NothingSeen, SeenImports, seen_imports
from tests.unit.launch.warm_standby.standby_scripts import command, install, notes_of, seen


def script(folder: Path, text: str) -> Path:
    path = folder / "script.py"
    path.write_text(text)
    return path


def seen_of(folder: Path, text: str) -> SeenImports:
    """What is seen of a worker that runs this."""
    return seen(folder, command(folder, str(script(folder, text))))


def ahead(found: SeenImports) -> set[str]:
    return set(found.imports) & {"a_package", "b_package", "zipapp"}


def test_installed_modules_are_seen_in_their_order_and_with_their_files(folder: Path) -> None:
    install(folder, "import zipapp")
    install(folder, "", name="b_package")
    found = seen_of(
        folder, "import b_package\nimport a_package\nimport helper\nimport nothing_here\n"
    )
    names = [name for name in found.imports if name in ("a_package", "b_package", "zipapp")]
    assert names == ["b_package", "a_package", "zipapp"]
    assert found.places["a_package"][1].endswith("/site-packages/a_package.py")
    assert found.places["helper"] == ("own", str(folder / "helper.py"))
    assert found.places["nothing_here"] == ("absent", "")
    assert found.path[0] == str(folder)
    assert set(found.own) == {str(folder / "script.py"), str(folder / "helper.py")}
    assert found.stopped == ""


# What the class of cases is about: each does something before an import, by which that may change.
BEFORE = [
    "import sys\nsys.path.insert(0, 'mine')",
    "from os import environ as env\nenv['OMP_NUM_THREADS'] = '2'",
    "import importlib\nimportlib.import_module('settings')",
    "import settings",
    "import runpy\nrunpy.run_path('settings.py')",
    "import sys\nclass Hook:\n    def find_spec(*_): return None\nsys.meta_path.insert(0, Hook())",
    "import sys, types\nsys.modules['zipapp'] = types.ModuleType('zipapp')",
    "import warnings\nwarnings.filterwarnings('ignore')",
    "import sys\nsys.setdlopenflags(sys.getdlopenflags() | 0x100)",
    "import random\nrandom.seed(1)",
    "import json\njson.loads = None",
    "from settings_lazily import anything",
    "exec('import settings')",
]


@pytest.mark.parametrize("before", BEFORE)
def test_after_anything_that_may_change_it_nothing_is_imported_ahead(
    folder: Path, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "settings.py").write_text("import os\nos.environ['A'] = '1'\n")
    (folder / "settings_lazily.py").write_text(
        "def __getattr__(name):\n    import settings\n    return settings\n"
    )
    install(folder, "", name="b_package")
    found = seen_of(folder, f"import b_package\n{before}\nimport a_package\nimport zipapp\n")
    assert ahead(found) == {"b_package"}
    assert "does more than import (line" in found.stopped or "from a function" in found.stopped
    assert "; a_package and what follows is not imported ahead" in found.stopped
    with pytest.raises(NothingSeen, match=r"does more than import|from a function"):
        seen_of(folder, f"{before}\nimport a_package\n")


def test_what_a_function_of_the_script_imports_is_not_imported_ahead(folder: Path) -> None:
    with pytest.raises(NothingSeen, match="a_package is imported from a function of the script's"):
        seen_of(folder, "def main():\n    import a_package\nmain()\n")


def test_the_modules_of_a_script_count_like_the_script(folder: Path) -> None:
    (folder / "helper.py").write_text("import a_package\nimport os\nos.umask(63)\n")
    found = seen_of(folder, "import helper\nimport zipapp\nimport b_package\n")
    assert ahead(found) == {"a_package"}
    assert found.stopped == ""
    (folder / "main").mkdir()
    (folder / "main" / "__init__.py").write_text("print('begins')\n")
    (folder / "main" / "__main__.py").write_text("import a_package\n")
    worker = command(
        folder, "-m", "main", PYTHONPATH=f"{command(folder).environment['PYTHONPATH']}:{folder}"
    )
    with pytest.raises(NothingSeen, match=r"__init__.py does more than import \(line 1\)"):
        seen(folder, worker)


@pytest.mark.parametrize("line", ["-S", "-I", "-E"])
def test_an_interpreter_without_our_file_has_noted_nothing(folder: Path, line: str) -> None:
    with pytest.raises(NothingSeen, match="the worker has noted no imports"):
        seen(folder, command(folder, line, str(script(folder, "import json\n"))))


def run(folder: Path, text: str, **options: object) -> str:
    """What a worker prints that notes its imports."""
    worker = command(folder, str(script(folder, text)))
    done: subprocess.CompletedProcess[str] = subprocess.run(
        worker.argv, env=worker.environment, check=True, timeout=50, text=True,
        capture_output=True, **options,  # type: ignore[call-overload]
    )  # fmt: skip
    return done.stdout


def test_what_cannot_be_written_is_no_matter_to_the_script(folder: Path) -> None:
    text = "import a_package, json, zipapp\nprint('runs')\n"

    def full() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))

    assert run(folder, text, preexec_fn=full) == "runs\n"
    (left,) = (folder / "notes").iterdir()
    with pytest.raises(NothingSeen):
        seen_imports(left)
    left.unlink()
    (folder / "notes").rmdir()
    assert run(folder, text) == "runs\n"


def test_a_file_that_is_there_is_not_written_to(folder: Path) -> None:
    # The script's own number is known once it is forked.
    target = folder / "target"
    target.touch()
    worker = command(folder, str(script(folder, "import a_package\n")))

    def link() -> None:
        os.symlink(target, folder / "notes" / f"{os.getpid()}.imports")  # noqa: PTH211

    subprocess.run(worker.argv, env=worker.environment, check=True, timeout=50, preexec_fn=link)
    assert target.read_text() == ""


def test_only_the_worker_itself_notes(folder: Path) -> None:
    text = (
        "import a_package, os, subprocess, sys\n"
        "if (pid := os.fork()) == 0:\n"
        "    import zipapp\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "subprocess.run([sys.executable, '-c', 'import zipapp'], check=True)\n"
    )
    run(folder, text)
    (notes,) = (folder / "notes").iterdir()
    assert b"a_package" in notes.read_bytes()
    assert b"zipapp" not in notes.read_bytes()


def test_an_import_in_a_thread_is_noted_but_not_made_ahead(folder: Path) -> None:
    install(
        folder,
        "import threading\ndef begin():\n    import b_package\n"
        "thread = threading.Thread(target=begin)\nthread.start()\nthread.join()\n",
    )
    install(folder, "", name="b_package")
    found = seen_of(folder, "import a_package\n")
    assert ahead(found) == {"a_package"}
    assert found.places["b_package"][0] == "installed"


def test_ctrl_c_while_an_import_is_noted_ends_the_script_as_ever(folder: Path) -> None:
    text = (
        "import signal, sys\n"
        "notes = next(f for f in sys.meta_path if 'Notes' in str(f))\n"
        "write = notes._write\n"
        "def interrupted(*fields):\n"
        "    write(*fields)\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "notes._write = interrupted\n"
        "try: import zipapp\n"
        "except KeyboardInterrupt: print('interrupted')\n"
        "notes._write = write\n"
        "import zipapp\n"
        "print('imported')\n"
    )
    assert run(folder, text) == "interrupted\nimported\n"


def written(folder: Path, data: bytes) -> Path:
    path = folder / "notes" / "1.imports"
    path.write_bytes(data)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    "data",
    [
        b"import\0torch\n",
        b"import\0torch\0somewhere\0/t.py\n",
        b"at\0/t.py:x\n",
        b"at\0/t.py:-1\n",
        b"file\0/t.py\0" + b"9" * 400 + b"\x001\x001\n",
        b"file\0/t.py\0one\x001\x001\n",
        b"later\n",
        b"over\n",
        b"\n",
        b"what\0is\0this\n",
        b"\xff\xfe\0\0\n",
        b"import\0" * 1000 + b"\n",
    ],
)
def test_notes_that_nobody_writes_are_not_believed(folder: Path, data: bytes) -> None:
    with pytest.raises(NothingSeen, match="cannot be read"):
        seen_imports(written(folder, data))


def test_a_file_of_somebody_else_is_not_read(folder: Path) -> None:
    good = b"path\0/x\nimport\0torch\0installed\0/t.py\n"
    path = written(folder, good)
    assert seen_imports(path).imports == ("torch",)
    path.chmod(0o640)
    with pytest.raises(NothingSeen, match="the notes of the worker's imports"):
        seen_imports(path)
    path.chmod(0o600)
    (folder / "link").symlink_to(path)
    os.mkfifo(folder / "pipe", 0o600)
    (folder / "large").touch(0o600)
    os.truncate(folder / "large", 1 << 30)
    for name in ("link", "pipe", "large", "notes"):
        with pytest.raises(NothingSeen):
            seen_imports(folder / name)
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
        with pytest.raises(NothingSeen):
            seen_imports(path)


def test_a_line_that_is_still_being_written_does_not_count(folder: Path) -> None:
    path = written(folder, b"path\0/x\nimport\0torch\0installed\0/t.py\nimport\0nu")
    assert seen_imports(path).imports == ("torch",)


@pytest.mark.parametrize(("age_s", "later"), [(0.0, ""), (0.1, "digest"), (5.0, "digest")])
def test_what_torch_imports_later_counts_once_it_has_been_imported(
    folder: Path, age_s: float, later: str
) -> None:
    path = written(
        folder, b"path\0/x\nimport\0torch\0installed\0/t.py\nover\0sympy\nlater\0digest\n"
    )
    now = time.time()
    assert seen_imports(path).later == ""
    with path.open("ab") as stream:
        stream.write(b"imported\n" if age_s == 0.1 else b"")
    os.utime(path, (now - age_s, now - age_s))
    assert seen_imports(path).later == later


def test_a_script_that_has_changed_since_it_ran_is_not_judged(folder: Path) -> None:
    path = script(folder, "import a_package\n")
    notes = notes_of(folder, command(folder, str(path)))
    path.write_text("import a_package  # as before, but who knows\n")
    with pytest.raises(NothingSeen, match=r"script.py does more than import; a_package"):
        seen_imports(notes)


def test_the_notes_import_nothing(folder: Path) -> None:
    text = "import sys\nprint([n for n in sys.modules if 'relkit' in n or n in ('ast', 'json')])\n"
    assert run(folder, text) == "[]\n"
    assert sys.version_info >= (3, 10)


def install_torch(folder: Path) -> None:
    """One that imports its compiler as torch does with the first optimizer."""
    imports = "importlib.import_module('torch._dynamo')"
    install(folder, f"import hashlib, importlib\ndef optimizer(): {imports}", name="torch/__init__")
    for name in ("_dynamo", "distributed/__init__", "distributed/distributed_c10d"):
        install(folder, "", name=f"torch/{name}")


# Each prints what it does without notes as well.
UNDISTURBED = {
    "a finder that asks all others": """
import sys
class Asks:
    def find_spec(self, name, path=None, target=None):
        for finder in list(sys.meta_path):
            if finder is not self and (spec := finder.find_spec(name, path, target)):
                return spec
sys.meta_path.append(Asks())
try:
    import nothing_here
except ImportError as error:
    print(type(error).__name__)
import wave
print(wave.__name__)
""",
    "a module that is imported once it is used": """
import importlib.util, sys
spec = importlib.util.find_spec("a_package")
loader = spec.loader = importlib.util.LazyLoader(spec.loader)
module = sys.modules["a_package"] = importlib.util.module_from_spec(spec)
loader.exec_module(module)
import torch
torch.optimizer()
print("end")
""",
    "finders in a finder": """
import sys
class Wraps:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return self.finder.find_spec(name, path, target)
sys.meta_path[:] = [Wraps(finder) for finder in sys.meta_path]
import wave, torch.distributed.distributed_c10d
torch.optimizer()
print(wave.__name__)
""",
    "a module that refuses to be looked at": """
import sys
class Refuses:
    def __getattr__(self, name):
        raise RuntimeError(name)
sys.modules["a_package"] = Refuses()
import torch
torch.optimizer()
print("end")
""",
}


@pytest.mark.parametrize("text", UNDISTURBED.values(), ids=UNDISTURBED)
def test_a_script_that_meddles_with_imports_does_as_without_notes(folder: Path, text: str) -> None:
    install(folder, "print('imported')")
    install_torch(folder)
    worker = command(folder, str(script(folder, text)))
    noted = {**worker.environment}
    without = {name: value for name, value in noted.items() if name != "RELKIT_IMPORTS_DIR"}
    said = [
        subprocess.run(
            worker.argv, env=environment, capture_output=True, text=True, timeout=50, check=False
        )
        for environment in (noted, without)
    ]
    assert [(each.returncode, each.stderr) for each in said] == [(0, ""), (0, "")]
    assert said[0].stdout == said[1].stdout


def test_that_torch_imports_its_compiler_is_seen_also_where_importlib_does_it(
    folder: Path,
) -> None:
    install_torch(folder)
    text = "import torch\ndef main():\n    torch.optimizer()\nmain()\nimport wave\n"
    assert seen_of(folder, text).later != ""


def test_what_code_of_the_scripts_raises_within_a_note_arrives(folder: Path) -> None:
    """As a handler of its own may, for a signal that comes just then."""
    text = """
import os
class Alarm(Exception):
    pass
def opens(*arguments, real=os.open):
    os.open = real
    raise Alarm
os.open = opens
try:
    import wave
except Alarm:
    print("caught")
import wave
print(wave.__name__)
"""
    worker = command(folder, str(script(folder, text)))
    done = subprocess.run(
        worker.argv, env=worker.environment, capture_output=True, text=True, timeout=50,
        check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("caught\nwave\n", 0), done.stderr
