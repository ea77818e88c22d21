"""Find out what works on this host, by trying it on children of our own."""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from relkit.doctor.facts import HostFacts, PlatformFacts, TorchFacts, TrialFacts
from relkit.errors import RelkitError
from relkit.files.usual_timeline import default_folder
from relkit.hook import environment, layout, locate
from relkit.own_name import own_name
from relkit.stacks.engines import base, pyspy

_CAP_SYS_PTRACE = 19
_NAME_S = 5.0

# The child permits its parent (prctl PR_SET_PTRACER), as the hook does in a real job, so that
# the trial is valid under yama's ptrace_scope=1.
_PATIENT_CHILD = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(0x59616D61, os.getppid(), 0, 0, 0)
def waiting_for_doctor():
    print("ready", flush=True)
    sys.stdin.read()
waiting_for_doctor()
"""

_TORCH_CHILD = """
import json
try:
    import torch, torch.distributed as dist
except ModuleNotFoundError:
    print(json.dumps({"version": ""}))
else:
    backends = [n for n in ("gloo", "nccl", "mpi", "ucc") if dist.is_available()
                and getattr(dist, f"is_{n}_available")()]
    accelerators = torch.accelerator.device_count() if hasattr(torch, "accelerator") else 0
    print(json.dumps({"version": torch.__version__, "backends": backends,
                      "accelerators": accelerators}))
"""


def _first_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def _try_hook(timeout_s: float) -> TrialFacts:
    """Preload the hook into a child, which reports whether it is mapped."""
    try:
        library = locate.hook_library()
    except RelkitError as error:
        return TrialFacts(False, str(error))
    script = "print('librelkit_hook' in open('/proc/self/maps').read())"
    try:
        child = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "LD_PRELOAD": str(library)},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return TrialFacts(False, str(error))
    if child.stdout.strip() == "True":
        return TrialFacts(True, f"{library.name}, layout version {layout.VERSION}")
    return TrialFacts(False, _first_line(child.stderr) or "the child did not map it")


def _try_pyspy(timeout_s: float) -> TrialFacts:
    """Read the Python stack of a child that waits for us."""
    with subprocess.Popen(
        [sys.executable, "-c", _PATIENT_CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            target = base.Target(child.pid, 0, 1, platform.node(), "doctor")
            result = pyspy.PySpyEngine().python(target, timeout_s)
        except RelkitError as error:
            return TrialFacts(False, str(error))
        finally:
            child.kill()
    functions = [frame.func for thread in result.threads for frame in thread.frames]
    if "waiting_for_doctor" in functions:
        return TrialFacts(True, "a child's stack was read without stopping it")
    return TrialFacts(False, "; ".join(result.notes) or "the child's function was not seen")


def _query_platforms(timeout_s: float) -> tuple[tuple[PlatformFacts, ...], str]:
    """(runtimes that are here, why that is not known), from a child under the hook."""
    with tempfile.TemporaryDirectory(prefix="relkit-doctor-") as folder:
        try:
            extra = environment.worker_environment(Path(folder), os.environ)
            child = subprocess.run(
                [sys.executable, "-m", "relkit.doctor.platforms"],
                env={**os.environ, **extra},
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
            rows = json.loads(child.stdout) if child.returncode == 0 else None
        except (RelkitError, OSError, subprocess.TimeoutExpired, ValueError) as error:
            return (), str(error)[:200]
    if rows is None:
        return (), _first_line(child.stderr) or f"exit code {child.returncode}"
    return tuple(
        PlatformFacts(
            row["platform"], tuple(row["libraries"]), tuple(row["absent"]), row["hooked"],
            tuple(row["missing"]), row["driver"],
        )
        for row in rows
    ), ""  # fmt: skip


def _query_torch(timeout_s: float) -> TorchFacts:
    """What torch is here; from a child, since importing torch takes seconds and may crash."""
    try:
        child = subprocess.run(
            [sys.executable, "-c", _TORCH_CHILD],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return TorchFacts(error=str(error))
    if child.returncode != 0:
        return TorchFacts(error=_first_line(child.stderr) or f"exit code {child.returncode}")
    answer = json.loads(child.stdout)
    return TorchFacts(
        version=answer["version"],
        backends=tuple(answer.get("backends", ())),
        accelerators=answer.get("accelerators", 0),
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _can_ptrace() -> bool:
    for line in _read("/proc/self/status").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_PTRACE & 1)
    return False


def _libc() -> str:
    name, version = platform.libc_ver()
    return f"{name} {version}" if name else "not glibc (musl or static)"


def _writable(folder: Path) -> bool:
    """Whether `folder` can be written, or made: its nearest existing parent decides."""
    place = folder
    try:
        while not place.exists() and place != place.parent:
            place = place.parent
        return place.is_dir() and os.access(place, os.W_OK | os.X_OK)
    except OSError:
        # It is below a folder that this user may not look into, such as root's home.
        return False


def collect(
    timeline_path: Path | None,
    *,
    timeout_s: float = 60.0,
    step: Callable[[str], None] = lambda _: None,
) -> HostFacts:
    """Look at this host.

    Args:
        timeline_path: the folder that a hang's evidence would go to; None: where `relkit launch`
            puts it by itself.
        timeout_s: limit for each single trial, s.
        step: called with the name of each trial as it starts, for a progress display.

    Returns:
        The facts; trials that fail are facts too, nothing is raised for them.
    """
    step("native hook")
    hook = _try_hook(timeout_s)
    step("py-spy")
    pyspy_trial = _try_pyspy(timeout_s)
    step("torch")
    torch = _query_torch(timeout_s)
    step("accelerator runtimes")
    platforms, platforms_error = _query_platforms(timeout_s)
    step("own name")
    own = own_name(min(timeout_s, _NAME_S))
    step("limits")
    yama = _read("/proc/sys/kernel/yama/ptrace_scope")
    try:
        shm = os.statvfs("/dev/shm")
        shm_free, shm_total = shm.f_bavail * shm.f_frsize, shm.f_blocks * shm.f_frsize
    except OSError:
        shm_free = shm_total = -1
    timeline = timeline_path or default_folder(_writable)
    core, _ = resource.getrlimit(resource.RLIMIT_CORE)
    return HostFacts(
        libc=_libc(),
        hook=hook,
        yama_scope=int(yama) if yama.isdigit() else None,
        can_ptrace=_can_ptrace(),
        effective_uid=os.geteuid(),
        pyspy=pyspy_trial,
        shm_free_bytes=shm_free,
        shm_total_bytes=shm_total,
        recorder_bytes=environment.PROCESS_BYTES,
        core_limit_bytes=-1 if core == resource.RLIM_INFINITY else core,
        core_pattern=_read("/proc/sys/kernel/core_pattern"),
        timeline_path=str(timeline),
        timeline_writable=_writable(timeline),
        dot=shutil.which("dot") is not None,
        torch=torch,
        own_name=own.name,
        own_name_problem=own.problem,
        platforms=platforms,
        platforms_error=platforms_error,
    )
