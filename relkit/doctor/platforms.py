"""Which accelerator runtimes are here, and which of their symbols the hook can see.

Run as a child of `relkit doctor`, under the hook: it loads each runtime's libraries for real, and
a driver that is broken may take it down.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from relkit.errors import RelkitError
from relkit.hook import marks
from relkit.hook.layout import HOOK
from relkit.hook.reader import state_files
from relkit.hook.state_file import open_state_file

# Platform -> the libraries that hold its rows, as the loader knows them without a version.
LIBRARIES: dict[str, tuple[str, ...]] = {
    "cuda": ("libcudart.so", "libcuda.so", "libcublas.so", "libcublasLt.so", "libnccl.so"),
    "maca": ("libmcruntime.so", "libmcblas.so", "libmcblasLt.so", "libmccl.so"),
    "hip": ("libamdhip64.so", "libhipblas.so", "libhipblaslt.so", "librccl.so"),
    "ascend": ("libascendcl.so", "libhccl.so"),
}
_VERSIONS = {
    "libcudart.so": ("13", "12", "11.0"), "libcuda.so": ("1",), "libcublas.so": ("13", "12"),
    "libcublasLt.so": ("13", "12"), "libnccl.so": ("2",), "libamdhip64.so": ("7", "6"),
    "libhipblas.so": ("3", "2"), "libhipblaslt.so": ("1", "0"), "librccl.so": ("1",),
}  # fmt: skip
_DRIVERS = {
    "cuda": ("/proc/driver/nvidia/version",),
    "maca": ("/sys/module/metax/version",),
    "hip": ("/sys/module/amdgpu/version",),
    "ascend": ("/usr/local/Ascend/driver/version.info",),
}


def main() -> int:
    """Print all platforms that are installed here, as JSON."""
    print(json.dumps([row for platform in LIBRARIES if (row := look(platform, rows()))]))
    return 0


def rows() -> list[tuple[str, str]]:
    """(platform, symbol) of all hooked rows, from the recorder of this very process."""
    marks.mark_step(0)
    folder = Path(os.environ.get("RELKIT_HOOK_DIR", os.devnull))
    for path in state_files(folder):
        try:
            with open_state_file(path) as file:
                table = file.rows(int(file.header["hooks_at"]), HOOK,
                                  int(file.header["hook_count"]))  # fmt: skip
        except RelkitError:
            continue
        return [(_text(row["platform"]), _text(row["symbol"])) for row in table]
    return []


def look(platform: str, hooked: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """One platform; {} where none of its libraries is here."""
    loaded = {name: library for name in LIBRARIES[platform] if (library := _load(name))}
    driver = _driver(platform)
    if not loaded:
        return {}
    symbols = [symbol for of, symbol in hooked if of == platform]
    there = [symbol for symbol in symbols if any(_has(lib, symbol) for lib in loaded.values())]
    return {
        "platform": platform,
        "libraries": list(loaded),
        "absent": [name for name in LIBRARIES[platform] if name not in loaded],
        "hooked": len(there),
        "missing": [symbol for symbol in symbols if symbol not in there],
        "driver": driver,
    }


def _load(name: str) -> ctypes.CDLL | None:
    for candidate in _candidates(name):
        try:
            return ctypes.CDLL(candidate)
        except OSError:
            continue
    return None


def _candidates(name: str) -> Iterator[str]:
    yield name
    for version in _VERSIONS.get(name, ()):
        yield f"{name}.{version}"
    # Wheels bring their own, which the loader does not know by name.
    places = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    for place in sorted(places):
        for pattern in (f"nvidia/*/lib/{name}*", f"torch/lib/{name}*", f"torch/lib/lib*{name}*"):
            yield from map(str, sorted(Path(place).glob(pattern)))


def _has(library: ctypes.CDLL, symbol: str) -> bool:
    try:
        library[symbol]
    except AttributeError:
        return False
    return True


def _driver(platform: str) -> str:
    for path in _DRIVERS[platform]:
        try:
            lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        if lines:
            return lines[0][:200]
    return ""


def _text(raw: Any) -> str:  # noqa: ANN401  a numpy scalar
    return bytes(raw).split(b"\0", 1)[0].decode("utf-8", "replace")


if __name__ == "__main__":
    sys.exit(main())
