"""One standby, with real processes: it runs the script as a new process would, and only once."""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from relkit.bootstrap import FOLDER as BOOTSTRAP
from relkit.launch.warm_standby import handover
from relkit.launch.warm_standby.handover import WorkerCommand
from relkit.launch.warm_standby.seen_imports import SeenImports
from relkit.launch.warm_standby.standby import HandOverFailed, Ready, Standby
from tests.unit.launch.warm_standby.standby_scripts import (
    LEFT_RUNNING,
    command,
    install,
    made,
    plain,
    seen,
)
from tests.waiting import eventually

NOTHING = SeenImports(("",), (), {}, "", {}, "")


@pytest.mark.parametrize("line", [("shows.py", "a", "-b"), ("-m", "shows", "a")])
def test_nothing_that_a_script_sees_is_different(
    folder: Path, line: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = command(folder, *line, GONE="1", RELKIT_OLD="1")
    before = WorkerCommand(
        before.argv, {k: v for k, v in before.environment.items() if k != "GONE"}
    )
    after = command(folder, *line, MASTER_PORT="2", RELKIT_NEW="2")
    standby = made(folder, before)
    assert not (folder / "ran").exists()
    with (folder / "warm").open("wb") as stream:
        process = standby.hand_over(after, [(1, stream.fileno())])
    assert process.wait(50) == plain(after, folder / "fresh") == 7
    warm, fresh = ((folder / name).read_text().splitlines() for name in ("warm", "fresh"))
    assert warm[0] == fresh[0] == "helper"
    assert json.loads(warm[1]) == json.loads(fresh[1])
    assert (folder / "ran").read_text() == "xx"


def test_what_an_import_prints_comes_when_the_script_would_import_it(folder: Path) -> None:
    (folder / "script.py").write_text("import this, a_package\nprint('mine')\n")
    worker = command(folder, str(folder / "script.py"))
    standby = made(folder, worker)
    with (folder / "warm").open("wb") as stream:
        assert standby.hand_over(worker, [(1, stream.fileno())]).wait(50) == 0
    lines = (folder / "warm").read_text().splitlines()
    assert lines[0] == "The Zen of Python, by Tim Peters"
    assert lines[-1] == "mine"


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "RANK"])
def test_another_environment_is_refused_and_the_script_never_run(folder: Path, name: str) -> None:
    standby = made(folder, command(folder, str(folder / "shows.py")))
    other = command(folder, str(folder / "shows.py"), **{name: "3"})
    with pytest.raises(HandOverFailed, match=f"{name} has changed"):
        standby.hand_over(other, ())
    assert standby.process is not None
    assert standby.process.returncode == -signal.SIGKILL
    assert not (folder / "ran").exists()


def test_one_that_was_killed_is_not_used(folder: Path) -> None:
    worker = command(folder, str(folder / "shows.py"))
    standby = made(folder, worker)
    assert standby.process is not None
    standby.process.kill()
    standby.process.wait(50)
    assert standby.look() == "it was killed by SIGKILL"
    assert standby.was_killed
    with pytest.raises(HandOverFailed, match="it was killed by SIGKILL"):
        standby.hand_over(worker, ())


def says_at_once(folder: Path, said: str) -> Standby:
    """One in which an installed package uses the socket, to say this."""
    (folder / "sitecustomize.py").write_text(
        "import os, re, signal, socket\n"
        "found = re.search('RELKIT_STANDBY=([0-9]+)', open('/proc/self/environ').read())\n"
        "launcher = socket.socket(fileno=int(found[1]))\n"
        f"said = {said!r}.replace('PID', str(os.getpid()))\n"
        "if not said: os._exit(3)\n"
        "launcher.send(said.encode())\n"
        "signal.pause()\n"
    )
    return Standby(with_own_sitecustomize(folder), NOTHING)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("{", "it sent an unexpected message"),
        ("[1]", "it sent an unexpected message"),
        ('{"ready": 1}', "the interpreter is not what the launcher has started"),
        ("", "it exited with code 3"),
    ],
)
def test_what_no_standby_says_is_the_end_of_it(folder: Path, said: str, why: str) -> None:
    standby = says_at_once(folder, said)
    standby.start()
    try:
        eventually(lambda: standby.look() != "", lambda: str(standby.ready))
        assert standby.look() == why
        assert not standby.was_killed
    finally:
        standby.end()


@pytest.mark.parametrize("size", ["1e999", "-1", '"many"', "9" * 400, "{}"])
def test_a_memory_that_is_no_number_of_bytes_is_not_known(folder: Path, size: str) -> None:
    standby = says_at_once(folder, f'{{"ready": PID, "pss_bytes": {size}}}')
    standby.start()
    try:
        eventually(lambda: standby.look() != "" or standby.ready is not None, standby.look)
        assert standby.ready == Ready(0)
    finally:
        standby.end()


@pytest.mark.parametrize(("does", "why"), LEFT_RUNNING)
def test_an_import_that_leaves_something_running_refuses(folder: Path, does: str, why: str) -> None:
    install(folder, does)
    worker = command(folder, str(folder / "shows.py"))
    standby = Standby(worker, seen(folder, worker))
    standby.start()
    try:
        eventually(lambda: standby.look() != "", lambda: str(standby.ready))
        assert why in standby.look()
        with pytest.raises(HandOverFailed, match=why):
            standby.hand_over(worker, ())
    finally:
        standby.end()
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("shows.py", "import os\nos.environ['A'] = '1'\nimport a_package\n", "shows.py has"),
        ("helper.py", "COUNT = 2\n", "helper.py has"),
        ("a_package.py", "", "another a_package beside"),
        ("user/lib/python{}.{}/site-packages/a_package.py", "A = 1\n", "a_package.py has"),
    ],
)
def test_one_whose_files_have_changed_is_not_used(
    folder: Path, name: str, text: str, why: str
) -> None:
    worker = command(folder, str(folder / "shows.py"))
    standby = made(folder, worker)
    (folder / name.format(*sys.version_info)).write_text(text)
    with pytest.raises(HandOverFailed, match=why):
        standby.hand_over(worker, ())
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    ("does", "why"),
    [
        ("import zipapp", "an import asks for zipapp, for which none of the worker's did"),
        ("import b_package", "b_package is not found where the worker has found it"),
    ],
)
def test_one_that_imports_otherwise_than_the_worker_is_refused(
    folder: Path, does: str, why: str
) -> None:
    install(folder, "try: import b_package\nexcept ImportError: pass\n")
    worker = command(folder, str(folder / "shows.py"))
    before = seen(folder, worker)
    install(folder, does)
    install(folder, "", name="b_package")
    standby = Standby(worker, before)
    standby.start()
    try:
        eventually(lambda: standby.look() != "", lambda: str(standby.ready))
        assert standby.look() == why
    finally:
        standby.end()


def test_it_is_ready_whatever_the_number_of_its_socket(folder: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        worker = command(folder, str(folder / "shows.py"))
        made(folder, worker).end()
    finally:
        for number in opened:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def with_own_sitecustomize(folder: Path) -> WorkerCommand:
    """The command of the script, which runs a sitecustomize of the folder's first."""
    path = f"{BOOTSTRAP}{os.pathsep}{folder}"
    return command(folder, str(folder / "shows.py"), PYTHONPATH=path)


@pytest.mark.parametrize("error", ["RuntimeError('broken')", "KeyError", "SystemExit(0)"])
def test_a_sitecustomize_that_fails_does_not_let_the_script_run(folder: Path, error: str) -> None:
    worker = with_own_sitecustomize(folder)
    before = seen(folder, worker)
    (folder / "sitecustomize.py").write_text(f"raise {error}\n")
    standby = made(folder, worker, before)
    assert not (folder / "ran").exists()
    with (folder / "warm").open("wb") as stream:
        code = standby.hand_over(worker, [(1, stream.fileno())]).wait(50)
    assert code == plain(worker, folder / "fresh")
    assert (folder / "warm").read_text().count("\n") == (folder / "fresh").read_text().count("\n")


def test_a_standby_that_cannot_be_held_is_gone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = with_own_sitecustomize(folder)
    broken = folder / "standby" / "worker"
    shutil.copytree(handover.FOLDER, broken)
    monkeypatch.setattr(handover, "FOLDER", broken)
    standby = Standby(worker, NOTHING)
    standby.start()
    try:
        eventually(lambda: standby.look() != "", lambda: str(standby.ready))
        assert standby.look() == "it exited with code 1"
    finally:
        standby.end()
    assert not (folder / "ran").exists()


def test_one_whose_launcher_has_ended_before_it_began_does_not_run_the_script(folder: Path) -> None:
    worker = with_own_sitecustomize(folder)
    environment = handover.standby_environment(worker.environment, 0, launcher_pid=1)
    done = subprocess.run(
        worker.argv, env=environment, stdin=subprocess.DEVNULL, timeout=50, check=False
    )
    assert done.returncode == 1
    assert not (folder / "ran").exists()


def test_what_a_standby_starts_runs_at_once(folder: Path) -> None:
    worker = with_own_sitecustomize(folder)
    child = f"open({str(folder / 'child')!r}, 'w').close()"
    (folder / "sitecustomize.py").write_text(
        "import os, subprocess, sys\n"
        "if 'OF_STANDBY' not in os.environ:\n"
        "    environment = {**os.environ, 'OF_STANDBY': '1'}\n"
        f"    argv = [sys.executable, '-c', {child!r}]\n"
        "    subprocess.run(argv, env=environment, timeout=50, check=True)\n"
    )
    made(folder, worker).end()
    assert (folder / "child").exists()
    assert not (folder / "ran").exists()


def test_more_than_a_standby_takes_is_not_handed_over(folder: Path) -> None:
    worker = with_own_sitecustomize(folder)
    standby = made(folder, worker)
    longer = {f"RELKIT_{number}": "x" * 60_000 for number in range(3)}
    with pytest.raises(HandOverFailed, match="it did not take over"):
        standby.hand_over(WorkerCommand(worker.argv, {**worker.environment, **longer}), ())
    assert not (folder / "ran").exists()


def test_it_ends_with_the_launcher(folder: Path) -> None:
    code = (
        "import os, sys, time\n"
        "from relkit.launch.warm_standby.standby import *\n"
        "from relkit.launch.warm_standby.handover import WorkerCommand\n"
        "from relkit.launch.warm_standby.seen_imports import SeenImports\n"
        f"s = Standby(WorkerCommand((sys.executable, '-u', {str(folder / 'shows.py')!r}),"
        " {**os.environ, 'RANK': '0'}), SeenImports(tuple(sys.path), (), {}, '', {}, ''))\n"
        "s.start()\n"
        "while s.ready is None and not s.look(): time.sleep(0.01)\n"
        "print(s.process.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    launcher = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert launcher.stdout is not None
    pid = int(launcher.stdout.readline())
    descriptor = os.pidfd_open(pid)
    launcher.kill()
    launcher.wait(50)
    launcher.stdout.close()
    assert select.select([descriptor], [], [], 50)[0]
    os.close(descriptor)
