"""Scripts and packages for standbys to import and run, and standbys that do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from relkit.launch.warm_standby.handover import WorkerCommand
from relkit.launch.warm_standby.standby import First, Standby, Target
from tests.waiting import eventually

SHOWS = """
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
        "dropped": str(sys.unraisablehook).partition(" at ")[0],
    }
    print(json.dumps(facts), flush=True)
    sys.exit(7)
main()
"""


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


def is_here(standby: Standby) -> bool:
    assert standby.look() == ""
    return standby._is_here


def made_first(worker: WorkerCommand, target: Target, *, writes_here: bool = False) -> Standby:
    """One of a job's first workers, which may not be ready yet."""
    standby = Standby(worker, target, first=First(writes_here))
    standby.start()
    eventually(lambda: is_here(standby), lambda: standby.look())
    return standby


def plain(worker: WorkerCommand, out: Path) -> int:
    with out.open("wb") as stream:
        return subprocess.run(
            worker.argv, env=worker.environment, stdout=stream, start_new_session=True,
            timeout=50, check=False,
        ).returncode  # fmt: skip


def with_package(folder: Path, does: str) -> WorkerCommand:
    """The command of a script that imports an installed package, and says what it is in."""
    # The folder stands in for site-packages.
    site = folder / "installed"
    site.mkdir()
    (site / "a_package.py").write_text(does)
    (folder / "sitecustomize.py").write_text(
        f"import site, sys\nsys.path.append({str(site)!r})\n"
        f"site.getsitepackages = lambda: [{str(site)!r}]\n"
    )
    (folder / "shows.py").write_text(f"import a_package\n{SHOWS}")
    return command(folder, str(folder / "shows.py"), PYTHONPATH=str(folder))


LEFT_RUNNING = [
    (
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
        "thread",
    ),
    ("import socket\nkept = socket.create_server(('127.0.0.1', 0))", "socket"),
    ("import subprocess\nkept = subprocess.Popen(['sleep', '100'])", "process"),
    ("raise RuntimeError", "RuntimeError"),
    ("import helper", "helper, which stands beside the script"),
]


# A package that is still being imported when its process is handed over; it needs the gate of
# conftest.py.
WAITS = """
import os
GATE = os.open(os.environ["RAN"] + "-gate", os.O_RDONLY)
os.read(GATE, 1)
os.close(GATE)
"""
