"""Run tests while the threads of C++ libraries get a processor only when nobody else wants it.

    python -m tools.late_threads tests/cluster/hangs/test_deaths.py

gloo's threads are quick on an idle machine, and tests come to rely on it: all ranks have connected
before the first one leaves, and a thread has dropped its tensor before Python shuts down. A test
that fails only here has such a race, in itself or in the product. Arguments are pytest's. (Programs
built with ASan refuse a library that is preloaded before theirs.)
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_SOURCE = Path(__file__).with_name("late_threads.c")
_LIBRARY = _ROOT / "build" / "late_threads" / "late_threads.so"
_COMPILE_S = 60.0


def build() -> Path:
    """Compile the library that is preloaded, and return where it is."""
    _LIBRARY.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own: several runs may begin at once.
    made = _LIBRARY.with_suffix(f".{os.getpid()}")
    compiler = os.environ.get("CC", "cc")
    options = ["-std=c11", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared"]
    subprocess.run(
        [compiler, *options, "-o", os.fspath(made), os.fspath(_SOURCE), "-ldl"],
        check=True,
        timeout=_COMPILE_S,
    )
    return made.replace(_LIBRARY)


def main() -> None:
    """Run pytest, with the library preloaded into it and whatever it starts."""
    environment = {**os.environ, "LD_PRELOAD": os.fspath(build())}
    pytest = subprocess.run(
        [sys.executable, "-m", "pytest", *sys.argv[1:]], env=environment, check=False
    )
    sys.exit(pytest.returncode)


if __name__ == "__main__":
    main()
