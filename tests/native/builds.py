"""The hook as tests run it: the one that is installed, and builds of it under the sanitizers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from relkit.hook.environment import worker_environment
from tests.native.kept import NATIVE, kept
from tests.native.recording import c_compiler, compile_c

SANITIZERS = {
    "plain": (),
    "asan": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "tsan": ("-fsanitize=thread",),
}
# RK_ENTRIES of native/src/loader/originals.h.
ENTRIES = 4
_LIBRARY = "librelkit_hook.so"
_RUNTIMES = {"asan": "libasan.so", "tsan": "libtsan.so"}
_OPTIONS = {
    "ASAN_OPTIONS": "abort_on_error=0:exitcode=99:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    # It waits for a second at the end of every process otherwise.
    "TSAN_OPTIONS": "exitcode=99:halt_on_error=1:atexit_sleep_ms=50",
}


@dataclass(frozen=True, slots=True)
class HookBuild:
    """One build of the hook.

    Args:
        name: a key of SANITIZERS; library: the hook, None for the one that is installed.
    """

    name: str
    library: Path | None = None

    @property
    def flags(self) -> tuple[str, ...]:
        """What programs that run under it are compiled with."""
        return SANITIZERS[self.name]

    def environment(self, folder: Path, **variables: str) -> dict[str, str]:
        """All variables of a process that records into the folder under this build."""
        base = {**os.environ, **variables, **_OPTIONS}
        base.pop("LD_PRELOAD", None)
        library = {"RELKIT_HOOK_LIBRARY": str(self.library)} if self.library else {}
        added = dict(worker_environment_of(folder, base, library))
        if self.name in _RUNTIMES:
            added["LD_PRELOAD"] = f"{sanitizer_library(self.name)} {added['LD_PRELOAD']}"
        return {**base, **added}


def worker_environment_of(
    folder: Path, base: dict[str, str], library: dict[str, str]
) -> dict[str, str]:
    """What relkit adds for a worker, with a hook other than the installed one."""
    before = {name: os.environ.get(name) for name in library}
    os.environ.update(library)
    try:
        return worker_environment(folder, base)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def sanitizer_library(name: str) -> str:
    """The sanitizer's library, which must be loaded before all others."""
    asked = [os.environ.get("CC", "cc"), f"-print-file-name={_RUNTIMES[name]}"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True)
    return str(Path(done.stdout.strip()).resolve())


def build_hook(name: str) -> HookBuild:
    """The hook under a sanitizer, compiled unless an earlier run has."""
    folder = kept(c_compiler(), ["hook", name], lambda folder: _compile_hook(folder, name))
    return HookBuild(name, folder / _LIBRARY)


def _compile_hook(folder: Path, name: str) -> None:
    sources = sorted(path for path in (NATIVE / "src").rglob("*.c"))
    flags = ("-O0", "-fexceptions", "-fasynchronous-unwind-tables", "-fvisibility=hidden", "-fPIC")
    objects = _objects(folder, sources, (*flags, *SANITIZERS[name]))
    compile_c(
        folder / _LIBRARY, objects, "-shared", *SANITIZERS[name],
        f"-Wl,--version-script={NATIVE / 'hook.map'}", "-Wl,-z,relro,-z,now,--as-needed", "-ldl",
    )  # fmt: skip
    for path in objects:
        path.unlink()


def _objects(folder: Path, sources: Sequence[Path], flags: Sequence[str]) -> list[Path]:
    """Compile each file, the wrappers once for each entry, as native/CMakeLists.txt does."""

    def one(source: Path, entry: int) -> Path:
        parts = source.relative_to(NATIVE / "src").with_suffix(f".{entry}.o").parts
        return compile_c(folder / "-".join(parts), [source], "-c", f"-DRK_ENTRY={entry}", *flags)

    wanted = [
        (source, entry)
        for source in sources
        for entry in (range(ENTRIES) if source.parent.name == "wrappers" else (0,))
    ]
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda pair: one(*pair), wanted))
