"""Which markers are left out: those that this machine cannot run, and long tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

_PROGRAMS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "browser": (("chromium", "chromedriver"), "no chromium"),
    "gdb": (("gdb",), "no gdb"),
    "dot": (("dot",), "no graphviz"),
    "sshd": (("/usr/sbin/sshd",), "no openssh-server"),
    "slurm": (
        ("/usr/sbin/slurmctld", "/usr/sbin/slurmd", "srun", "/usr/sbin/munged"),
        "no slurmctld, slurmd, srun or munged",
    ),
    "spark": (("java",), "no Java"),
}
# What no script of the project's can install: left out on any machine that has not been given it.
GIVEN = frozenset(("megatron_lm",))
_FUZZ_TARGET = "int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return !d && n; }\n"


def markers_left_out(
    is_root: bool,
    which: Callable[[str], str | None] = shutil.which,
    can_fuzz: Callable[[], bool] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Marker and reason.

    Args:
        is_root: tests may make namespaces and trace other processes.
        which: finds a program.
        can_fuzz: whether clang links a fuzzer.
        environ: says where a checkout of Megatron-LM is.
    """
    left = {} if is_root else {"root": "not running as root"}
    for marker, (programs, reason) in _PROGRAMS.items():
        if not all(which(program) for program in programs):
            left[marker] = reason
    if not (can_fuzz or _links_a_fuzzer)():
        left["fuzz"] = "clang does not link a fuzzer: it is missing, or its libclang-rt"
    if not environ.get("MEGATRON_PATH"):
        left["megatron_lm"] = "MEGATRON_PATH names no checkout of Megatron-LM"
    return left


def selection(left: Iterable[str], *, has_long: bool) -> str:
    """Pytest's -m. It never has tests of the machine's speed, which `make bench` runs.

    Args:
        left: markers that this machine cannot run.
        has_long: run the tests marked `long`.
    """
    return " and ".join(
        f"not {marker}" for marker in ("speed", *left, *(() if has_long else ("long",)))
    )


def is_strict(environ: Mapping[str, str], is_root: bool) -> bool:
    """Whether all must run here: CI's machine, or one that could have installed what is missing."""
    return is_root or environ.get("CI", "").lower() not in ("", "0", "false")


def _links_a_fuzzer() -> bool:
    if not shutil.which("clang"):
        return False
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "target.c"
        source.write_text(_FUZZ_TARGET, encoding="ascii")
        argv = ["clang", "-fsanitize=fuzzer,address,undefined", "-o", f"{folder}/target"]
        done = subprocess.run(
            [*argv, str(source)], check=False, timeout=60, capture_output=True,
            stdin=subprocess.DEVNULL, env={**os.environ, "TMPDIR": folder},
        )  # fmt: skip
    return done.returncode == 0
