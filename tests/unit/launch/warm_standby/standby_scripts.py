"""Scripts and packages for standbys to import and run, and standbys that do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from relkit.bootstrap import FOLDER as BOOTSTRAP
from relkit.launch.warm_standby.handover import WorkerCommand
from relkit.launch.warm_standby.seen_imports import SeenImports, seen_imports
from relkit.launch.warm_standby.standby import Standby
from tests.waiting import eventually

SHOWS = """
import json, logging, os, signal, sys, threading
import a_package
import helper
RAN = open(os.environ["RAN"], "a")
RAN.write("x")
def main():
    facts = {
        "argv": sys.argv, "path0": sys.path[0], "path": sys.path[1:], "name": __name__,
        "file": globals().get("__file__"), "spec": getattr(__spec__, "name", None),
        "main": sys.modules["__main__"].main is main, "cwd": os.getcwd(),
        "environ": {k: v for k, v in os.environ.items() if k not in NOT_SHOWN},
        "handlers": [str(signal.getsignal(n)) for n in range(1, 65) if n not in (32, 33)],
        "threads": threading.active_count(), "flags": str(sys.flags), "nice": os.nice(0),
        "meta": [str(f).partition(" at ")[0] for f in sys.meta_path if "Notes" not in str(f)],
        "comm": open("/proc/self/comm").read(), "cmdline": open("/proc/self/cmdline").read(),
        "oom": open("/proc/self/oom_score_adj").read(), "sid": os.getsid(0) == os.getpid(),
        "ours": [n for n in sys.modules if "standby" in n or "notes" in n], "helper": helper.COUNT,
        "fds": len(os.listdir("/proc/self/fd")), "orig": sys.orig_argv,
        "dropped": str(sys.unraisablehook).partition(" at ")[0],
    }
    print(json.dumps(facts), flush=True)
    sys.exit(7)
NOT_SHOWN = ("RAN", "LC_CTYPE", "RELKIT_BOOTSTRAP_PID")
main()
"""


def command(folder: Path, *line: str, **environment: str) -> WorkerCommand:
    """Of a worker that notes its imports, for which `installed` is installed."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    added = {
        "RAN": str(folder / "ran"), "RANK": "1", "PYTHONPATH": str(BOOTSTRAP),
        "PYTHONUSERBASE": str(folder / "user"), "RELKIT_SOCKET_DIR": str(folder),
        "RELKIT_IMPORTS_DIR": str(folder / "notes"), **environment,
    }  # fmt: skip
    # A virtual environment has no packages of the user's.
    python = str(getattr(sys, "_base_executable", sys.executable))
    return WorkerCommand((python, "-u", *line), {**kept, **added})


def install(folder: Path, does: str, name: str = "a_package") -> None:
    """A module that counts as installed."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    site = folder / "user" / "lib" / version / "site-packages"
    site.mkdir(parents=True, exist_ok=True)
    (site / f"{name}.py").parent.mkdir(exist_ok=True)
    (site / f"{name}.py").write_text(does)


def notes_of(folder: Path, worker: WorkerCommand) -> Path:
    """What a worker notes that runs to its end."""
    process = subprocess.Popen(
        worker.argv, env={**worker.environment, "RAN": os.devnull}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    process.wait(50)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return folder / "notes" / f"{process.pid}.imports"


def seen(folder: Path, worker: WorkerCommand) -> SeenImports:
    """What a worker is seen to import."""
    return seen_imports(notes_of(folder, worker))


def is_ready(standby: Standby) -> bool:
    assert standby.look() == ""
    return standby.ready is not None


def made(folder: Path, worker: WorkerCommand, before: SeenImports | None = None) -> Standby:
    """A standby for such a worker, which waits."""
    standby = Standby(worker, before or seen(folder, worker))
    standby.start()
    eventually(lambda: is_ready(standby), lambda: standby.look())
    return standby


def plain(worker: WorkerCommand, out: Path) -> int:
    with out.open("wb") as stream:
        return subprocess.run(
            worker.argv, env=worker.environment, stdout=stream, start_new_session=True,
            timeout=50, check=False,
        ).returncode  # fmt: skip


LEFT_RUNNING = [
    (
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
        "thread",
    ),
    ("import socket\nkept = socket.create_server(('127.0.0.1', 0))", "socket"),
    ("import subprocess\nkept = subprocess.Popen(['sleep', '100'])", "process"),
    ("raise RuntimeError", "RuntimeError"),
    ("import helper", "helper, which is the script's own"),
]


# A package that is still being imported when its process is handed over; it needs the gate of
# conftest.py.
WAITS = """
import os
GATE = os.open(os.environ["RAN"] + "-gate", os.O_RDONLY)
os.read(GATE, 1)
os.close(GATE)
"""
