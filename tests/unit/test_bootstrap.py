"""What runs in a worker before its code: it reports, gives way, and never gets in the way."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from relkit.bootstrap import FOLDER, bootstrap_environment
from relkit.hook.locate import hook_library
from relkit.process.identity import own_identity, own_namespace


def run(code: str, **environment: str) -> str:
    base = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PYTHONPATH")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=base | environment | bootstrap_environment(environment),
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.strip()


def test_the_folder_comes_first_and_nothing_else_changes() -> None:
    assert bootstrap_environment({}) == {"PYTHONPATH": str(FOLDER)}
    both = bootstrap_environment({"PYTHONPATH": "/some/where"})["PYTHONPATH"]
    assert both == f"{FOLDER}{os.pathsep}/some/where"
    assert bootstrap_environment({"PYTHONPATH": both}) == {}
    assert bootstrap_environment({"RELKIT_BOOTSTRAP": "0"}) == {}


def test_only_what_is_meant_to_be_found_is_on_the_path() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.py")) == [
        "relkit_call_marks.py", "relkit_import_notes.py", "sitecustomize.py",
    ]  # fmt: skip


def test_without_a_rank_or_the_hook_nothing_is_installed() -> None:
    code = (
        "import gc, sys; print(len(gc.callbacks), any('_Finder' in str(f) for f in sys.meta_path))"
    )
    assert run(code) == "0 False"
    assert run(code, RANK="0") == "0 False"


@pytest.mark.parametrize("first", ["", "raise ImportError('no', name='other')"])
def test_the_workers_own_sitecustomize_runs(tmp_path: Path, first: str) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.told = 'mine'\n" + first)
    code = "import sys, builtins; print(builtins.told, [p for p in sys.path if 'bootstrap' in p])"
    base = {"PYTHONPATH": str(tmp_path)}
    if not first:
        assert run(code, **base) == "mine []"
        return
    with pytest.raises(AssertionError, match="Error in sitecustomize"):
        run(code, **base)


def test_it_is_gone_from_the_path_of_the_job() -> None:
    assert run("import sys; print([p for p in sys.path if 'bootstrap' in p])") == "[]"


def test_it_imports_only_what_costs_nothing() -> None:
    lines = (FOLDER / "sitecustomize.py").read_text().splitlines()
    top = [line.split()[1] for line in lines if line.startswith(("import ", "from "))]
    assert set(top) <= {"__future__", "atexit", "gc", "os", "sys", "time"}


_LOOK = """
import gc, subprocess, sys
print(len(gc.callbacks), flush=True)
if len(sys.argv) < 2:
    subprocess.run([sys.executable, "-c", open("/proc/self/cmdline").read().split(chr(0))[2], "x"])
"""


def preloaded(tmp_path: Path) -> str:
    """A library that is called as the hook is, and has nothing of it."""
    library = tmp_path / "librelkit_none.so"
    source = tmp_path / "none.c"
    source.write_text("int relkit_nothing;\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=50)
    return str(library)


@pytest.mark.native
def test_a_rank_is_watched_and_what_it_starts_is_not(tmp_path: Path) -> None:
    library = preloaded(tmp_path)
    assert run(_LOOK, RANK="0", LD_PRELOAD=library).split() == ["1", "0"]
    # A launcher has no rank: its workers are watched.
    assert run(_LOOK, LD_PRELOAD=library).split() == ["0", "0"]
    assert run(_LOOK, RANK="0", LD_PRELOAD=library, RELKIT_BOOTSTRAP="0").split() == ["0", "0"]


@pytest.mark.native
def test_a_script_finds_no_module_imported_that_it_would_not_find_without_relkit(
    tmp_path: Path,
) -> None:
    code = "import sys; print(*sorted(sys.modules))"
    plain = set(run(code, RELKIT_BOOTSTRAP="0").split())
    rank = set(run(code, RANK="0", LD_PRELOAD=preloaded(tmp_path)).split())
    # The last three are Python's own, without files: no folder of the script's can have others.
    own = {"sitecustomize", "relkit_call_marks", "__future__", "atexit", "gc", "time"}
    assert rank - plain <= own


@pytest.mark.native
def test_a_hook_without_marks_is_no_harm(tmp_path: Path) -> None:
    code = "import ctypes, gc; gc.collect(); gc.collect(); print('fine')"
    assert run(code, RANK="0", LD_PRELOAD=preloaded(tmp_path)) == "fine"


# Starts a rank, prints its pid, and stays until it is ended.
_LAUNCHER = """
import os, subprocess, sys
from relkit.process.identity import own_identity
os.environ.update(RANK="0", RELKIT_LAUNCHER=own_identity().to_text())
code = "import signal; print('up', flush=True); signal.pause()"
rank = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
rank.stdout.readline()
print(rank.pid, flush=True)
input()
"""


def rank_environment(**more: str) -> dict[str, str]:
    base = {k: v for k, v in os.environ.items() if not k.startswith("RELKIT_")}
    return base | {"LD_PRELOAD": str(hook_library())} | bootstrap_environment({}) | more


def test_a_rank_ends_with_its_launcher() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _LAUNCHER],
        env=rank_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as launcher:
        assert launcher.stdout is not None
        pid = int(launcher.stdout.readline())
        rank = os.pidfd_open(pid)
        launcher.kill()
        ended, _, _ = select.select([rank], [], [], 20)
        if not ended:
            os.kill(pid, signal.SIGKILL)
        os.close(rank)
    assert ended


def strangers() -> dict[str, str]:
    """Launchers that are not this process's parent, by what tells it."""
    gone = subprocess.Popen(["true"])
    me = own_identity()
    texts = {
        "a number alone": str(me.pid),
        "another start": replace(me, start_ticks=me.start_ticks + 1).to_text(),
        "another namespace": replace(me, namespace=me.namespace + 1).to_text(),
        "no namespace": replace(me, namespace=0).to_text(),
        "another host": me.to_text()[:-1] + "x",
        "no host": me.to_text().rpartition("/")[0] + "/",
        "one that has ended": replace(me, pid=gone.pid).to_text(),
        "nonsense": "//////",
    }
    gone.wait()
    return texts


@pytest.mark.parametrize("what", strangers())
def test_a_rank_is_left_alone_that_is_not_known_to_be_the_launchers_child(what: str) -> None:
    """In a container, on another host by srun, or below a script that outlives its launcher."""
    code = (
        "import ctypes; n = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(n)); print(n)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=rank_environment(RANK="0", RELKIT_LAUNCHER=strangers()[what]),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "c_int(0)\n")


@pytest.mark.root
@pytest.mark.parametrize("mounts", [(), ("--mount-proc",)], ids=["the host's /proc", "its own"])
def test_a_rank_in_a_pid_namespace_of_its_own_starts(mounts: tuple[str, ...]) -> None:
    namespace = ["unshare", "--pid", "--fork", *mounts]
    code = "import os; print(os.getpid())"
    done = subprocess.run(
        [*namespace, "sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", code],
        env=rank_environment(RANK="0", RELKIT_LAUNCHER=own_identity().to_text()),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "2\n")


@pytest.mark.parametrize(("of", "signal_number"), [("", 9), ("1", 0)])
def test_only_the_rank_itself_is_ended_with_the_launcher(of: str, signal_number: int) -> None:
    marked = {"RELKIT_BOOTSTRAP_PID": of} if of else {}
    code = (
        "import ctypes; n = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(n)); print(n)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=rank_environment(RANK="0", RELKIT_LAUNCHER=own_identity().to_text(), **marked),
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    assert done.stdout == f"c_int({signal_number})\n"


# A torch that has process groups and a worker server, and says what happens to it.
_TORCH = {
    "torch/__init__.py": "",
    "torch/distributed/__init__.py": "from .distributed_c10d import *",
    "torch/distributed/distributed_c10d.py": """
import torch._C._distributed_c10d
def init_process_group(backend):
    "Makes a group."
    print("group", backend)
    return 5
def is_nccl_available():
    return False
""",
    "torch/_C/__init__.py": "",
    "torch/_C/_distributed_c10d.py": """
import os, socket, threading
class _WorkerServer:
    def __init__(self, path):
        print("serves", path.rpartition("/")[2])
        if os.path.isdir(os.path.dirname(path)):
            self.socket = socket.create_server(path, family=socket.AF_UNIX)
            threading.Thread(target=self.answer, daemon=True).start()
    def answer(self):
        while "LATE" not in os.environ:
            connection, _ = self.socket.accept()
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK")
            connection.close()
    def shutdown(self):
        print("ends")
    def __del__(self):
        print("freed")
""",
}
_JOB = """
import os
import torch.distributed as dist
print(dist.init_process_group.__doc__, dist.init_process_group("gloo"))
dist.init_process_group("again")
print(os.getpid())
"""


def torch_stand_in(folder: Path, **others: str) -> str:
    for name, text in {**_TORCH, **others}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return str(folder)


def test_a_rank_without_the_hook_serves_from_its_first_group_to_its_end(tmp_path: Path) -> None:
    path = torch_stand_in(tmp_path)
    lines = run(_JOB, RANK="0", PYTHONPATH=path, RELKIT_SOCKET_DIR=str(tmp_path)).splitlines()
    pid = lines[-2]
    assert lines == [
        "group gloo", f"serves {pid}.{own_namespace()}.sock", "Makes a group. 5", "group again",
        pid, "ends",
    ]  # fmt: skip


def test_what_goes_wrong_with_the_server_is_not_the_jobs(tmp_path: Path) -> None:
    asked = {"RANK": "0", "PYTHONPATH": torch_stand_in(tmp_path), "RELKIT_SOCKET_DIR": "/x"}
    said = run(_JOB.replace("import os", "import os; os.environ.clear()"), **asked)
    assert said.splitlines()[:2] == ["group gloo", "Makes a group. 5"]


def test_a_server_whose_thread_has_not_begun_holds_up_no_end(tmp_path: Path) -> None:
    path = torch_stand_in(tmp_path)
    asked = {"RANK": "0", "PYTHONPATH": path, "RELKIT_SOCKET_DIR": str(tmp_path)}
    lines = run(_JOB, **asked, LATE="1").splitlines()
    assert lines[1].startswith("serves")
    assert lines[-1].isdecimal()


_SHORT = """
import os
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
namespace = os.stat("/proc/self/ns/pid").st_ino
print(os.listdir(os.environ["RELKIT_SOCKET_DIR"]) == [f"{os.getpid()}.{namespace}.sock"])
"""


@pytest.mark.parametrize("attempt", range(3))
def test_a_rank_that_ends_as_soon_as_torchs_server_is_there(tmp_path: Path, attempt: int) -> None:
    asked = {"RANK": "0", "RELKIT_SOCKET_DIR": str(tmp_path), "TORCH_CPP_LOG_LEVEL": "ERROR"}
    assert run(_SHORT, **asked) == "True", attempt


@pytest.mark.parametrize("environ", [{}, {"RELKIT_SOCKET_DIR": "/x", "RELKIT_BOOTSTRAP": "0"}])
def test_nothing_serves_unasked(tmp_path: Path, environ: dict[str, str]) -> None:
    assert "serves" not in run(_JOB, RANK="0", PYTHONPATH=torch_stand_in(tmp_path), **environ)


def test_a_torch_without_a_server_is_left_alone(tmp_path: Path) -> None:
    path = torch_stand_in(tmp_path, **{"torch/_C/_distributed_c10d.py": ""})
    said = run(_JOB, RANK="0", PYTHONPATH=path, RELKIT_SOCKET_DIR="/x")
    assert "Makes a group. 5" in said


@pytest.mark.native
def test_with_the_hook_a_rank_serves_only_where_nccl_is_part_of_torch(tmp_path: Path) -> None:
    path = torch_stand_in(tmp_path)
    asked = {
        "RANK": "0", "PYTHONPATH": path, "LD_PRELOAD": str(hook_library()),
        "RELKIT_SOCKET_DIR": "/x",
    }  # fmt: skip
    assert "serves" not in run(_JOB, **asked)
    assert "serves" in run(_JOB, **asked, RELKIT_WORKER_SERVER="1")
    has_nccl = _TORCH["torch/distributed/distributed_c10d.py"].replace("False", "True")
    (tmp_path / "torch/distributed/distributed_c10d.py").write_text(has_nccl)
    assert "serves" in run(_JOB, **asked)
    # A library of that name is mapped: the hook can see its calls.
    library = Path(preloaded(tmp_path)).rename(tmp_path / "libnccl.so.2")
    code = f"import ctypes; ctypes.CDLL({str(library)!r})\n{_JOB}"
    assert "serves" not in run(code, **asked)
