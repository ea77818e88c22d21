"""One standby, with real processes: it runs the script as a new process would, and only once."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from relkit.launch.warm_standby import handover
from relkit.launch.warm_standby.handover import WorkerCommand
from relkit.launch.warm_standby.standby import HandOverFailed, Ready, Standby, Target
from tests.waiting import eventually

_SHOWS = """
import json, logging, os, signal, sys, threading
import helper
RAN = open(os.environ["RAN"], "a")
RAN.write("x")
def main():
    facts = {
        "argv": sys.argv, "path0": sys.path[0], "path": sys.path[1:], "name": __name__,
        "file": globals().get("__file__"), "spec": getattr(__spec__, "name", None),
        "main": sys.modules["__main__"].main is main, "cwd": os.getcwd(),
        "environ": {k: v for k, v in os.environ.items() if k not in ("RAN", "LC_CTYPE")},
        "handlers": [str(signal.getsignal(n)) for n in range(1, 65) if n not in (32, 33)],
        "threads": threading.active_count(), "flags": str(sys.flags), "nice": os.nice(0),
        "meta": [str(f).partition(" at ")[0] for f in sys.meta_path],
        "comm": open("/proc/self/comm").read(), "cmdline": open("/proc/self/cmdline").read(),
        "oom": open("/proc/self/oom_score_adj").read(), "sid": os.getsid(0) == os.getpid(),
        "ours": [n for n in sys.modules if "standby" in n], "helper": helper.COUNT,
        "fds": len(os.listdir("/proc/self/fd")), "orig": sys.orig_argv,
    }
    print(json.dumps(facts), flush=True)
    sys.exit(7)
main()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shows.py").write_text(_SHOWS)
    (tmp_path / "helper.py").write_text("COUNT = 1\nprint('helper')\n")
    return tmp_path


def command(folder: Path, *line: str, **environment: str) -> WorkerCommand:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    added = {"RAN": str(folder / "ran"), "RANK": "1", **environment}
    return WorkerCommand((sys.executable, "-u", *line), {**kept, **added})


def is_ready(standby: Standby) -> bool:
    assert standby.look() == ""
    return standby.ready is not None


def made(worker: WorkerCommand, target: Target) -> Standby:
    standby = Standby(worker, target)
    standby.start()
    eventually(lambda: is_ready(standby), lambda: standby.look())
    return standby


def plain(worker: WorkerCommand, out: Path) -> int:
    with out.open("wb") as stream:
        return subprocess.run(
            worker.argv, env=worker.environment, stdout=stream, start_new_session=True,
            timeout=50, check=False,
        ).returncode  # fmt: skip


@pytest.mark.parametrize("line", [("shows.py", "a", "-b"), ("-m", "shows", "a")])
def test_nothing_that_a_script_sees_is_different(
    folder: Path, line: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = command(folder, *line, GONE="1", RELKIT_OLD="1")
    before = WorkerCommand(
        before.argv, {k: v for k, v in before.environment.items() if k != "GONE"}
    )
    after = command(folder, *line, RANK="0", RELKIT_NEW="2")
    is_module = line[0] == "-m"
    standby = made(before, Target(line[1] if is_module else line[0], is_module))
    assert not (folder / "ran").exists()
    with (folder / "warm").open("wb") as stream:
        process = standby.hand_over(after, [(1, stream.fileno())])
    assert process.wait(50) == plain(after, folder / "fresh") == 7
    warm, fresh = ((folder / name).read_text().splitlines() for name in ("warm", "fresh"))
    assert warm[0] == fresh[0] == "helper"
    assert json.loads(warm[1]) == json.loads(fresh[1])
    assert (folder / "ran").read_text() == "xx"


def test_what_an_import_prints_comes_when_the_script_would_import_it(folder: Path) -> None:
    site = folder / "site"
    site.mkdir()
    (folder / "script.py").write_text("import this\nprint('mine')\n")
    worker = command(folder, str(folder / "script.py"))
    standby = made(worker, Target(str(folder / "script.py")))
    with (folder / "warm").open("wb") as stream:
        assert standby.hand_over(worker, [(1, stream.fileno())]).wait(50) == 0
    lines = (folder / "warm").read_text().splitlines()
    assert lines[0] == "The Zen of Python, by Tim Peters"
    assert lines[-1] == "mine"


def test_another_environment_is_refused_and_the_script_never_run(folder: Path) -> None:
    standby = made(command(folder, str(folder / "shows.py")), Target(str(folder / "shows.py")))
    other = command(folder, str(folder / "shows.py"), OMP_NUM_THREADS="3")
    with pytest.raises(HandOverFailed, match="OMP_NUM_THREADS has changed"):
        standby.hand_over(other, ())
    assert standby.process is not None
    assert standby.process.returncode == -signal.SIGKILL
    assert not (folder / "ran").exists()


def test_one_that_was_killed_is_not_used(folder: Path) -> None:
    worker = command(folder, str(folder / "shows.py"))
    standby = made(worker, Target(str(folder / "shows.py")))
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
    worker = command(folder, str(folder / "shows.py"), PYTHONPATH=str(folder))
    return Standby(worker, Target(str(folder / "shows.py")))


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
    standby = says_at_once(folder, f'{{"ready": PID, "pss_bytes": {size}, "stopped": ""}}')
    standby.start()
    try:
        eventually(lambda: standby.look() != "" or standby.ready is not None, standby.look)
        assert standby.ready == Ready(0, "")
    finally:
        standby.end()


@pytest.mark.parametrize(
    ("does", "why"),
    [
        ("import threading\nthreading.Thread(target=threading.Event().wait).start()", "thread"),
        ("import socket\nkept = socket.create_server(('127.0.0.1', 0))", "socket"),
        ("import subprocess\nkept = subprocess.Popen(['sleep', '100'])", "process"),
        ("raise RuntimeError", "RuntimeError"),
        ("import helper", "helper, which stands beside the script"),
    ],
)
def test_an_import_that_leaves_something_running_refuses(folder: Path, does: str, why: str) -> None:
    # An installed package: the folder stands in for site-packages.
    site = folder / "installed"
    site.mkdir()
    (site / "leaves_something.py").write_text(does)
    (folder / "sitecustomize.py").write_text(
        f"import site, sys\nsys.path.append({str(site)!r})\n"
        f"site.getsitepackages = lambda: [{str(site)!r}]\n"
    )
    (folder / "script.py").write_text("import leaves_something\n")
    worker = command(folder, str(folder / "script.py"), PYTHONPATH=str(folder))
    standby = Standby(worker, Target(str(folder / "script.py")))
    standby.start()
    try:
        eventually(lambda: standby.look() != "", lambda: str(standby.ready))
        assert why in standby.look()
    finally:
        standby.end()


def with_own_sitecustomize(folder: Path) -> WorkerCommand:
    """The command of the script, which runs a sitecustomize of the folder's first."""
    return command(folder, str(folder / "shows.py"), PYTHONPATH=str(folder))


@pytest.mark.parametrize("error", ["RuntimeError('broken')", "KeyError", "SystemExit(0)"])
def test_a_sitecustomize_that_fails_does_not_let_the_script_run(folder: Path, error: str) -> None:
    worker = with_own_sitecustomize(folder)
    (folder / "sitecustomize.py").write_text(f"raise {error}\n")
    standby = made(worker, Target(str(folder / "shows.py")))
    assert not (folder / "ran").exists()
    with (folder / "warm").open("wb") as stream:
        code = standby.hand_over(worker, [(1, stream.fileno())]).wait(50)
    assert code == plain(worker, folder / "fresh")
    assert (folder / "warm").read_text().count("\n") == (folder / "fresh").read_text().count("\n")


def test_a_standby_that_cannot_be_held_is_gone(folder: Path) -> None:
    worker = with_own_sitecustomize(folder)
    (folder / "sitecustomize.py").write_text(
        "import importlib.util\nimportlib.util.module_from_spec = None\n"
    )
    standby = Standby(worker, Target(str(folder / "shows.py")))
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
    made(worker, Target(str(folder / "shows.py"))).end()
    assert (folder / "child").exists()
    assert not (folder / "ran").exists()


def test_more_than_a_standby_takes_is_not_handed_over(folder: Path) -> None:
    worker = with_own_sitecustomize(folder)
    standby = made(worker, Target(str(folder / "shows.py")))
    longer = {f"RELKIT_{number}": "x" * 60_000 for number in range(3)}
    with pytest.raises(HandOverFailed, match="it did not take over"):
        standby.hand_over(WorkerCommand(worker.argv, {**worker.environment, **longer}), ())
    assert not (folder / "ran").exists()


def test_it_ends_with_the_launcher(folder: Path) -> None:
    code = (
        "import os, sys, time\n"
        "from relkit.launch.warm_standby.standby import *\n"
        "from relkit.launch.warm_standby.handover import WorkerCommand\n"
        f"s = Standby(WorkerCommand((sys.executable, '-u', {str(folder / 'shows.py')!r}),"
        f" dict(os.environ)), Target({str(folder / 'shows.py')!r}))\n"
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
