"""Builds the simulated devices of native/tests/sim, and the programs that use them.

Test doubles: they have the names of the vendors' libraries and none of their code, and no wheel
holds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.native.kept import NATIVE, kept
from tests.native.recording import c_compiler, compile_c

SIM = NATIVE / "tests" / "sim"
CLIENTS = NATIVE / "tests" / "clients"
PLATFORMS = ("cuda", "maca", "hip", "ascend")

_CORE = (
    *("batch.c", "capture.c", "clock.c", "device.c", "event.c", "group.c"),
    *("inject.c", "report.c", "stream.c", "work.c"),
)
_ACCELERATOR = (
    "accelerator.c",
    "client.c",
    "ends.c",
    "forks.c",
    "inits.c",
    "ranks.c",
    "threads.c",
    "work.c",
)
_STRICT = ("-O1", "-Wpedantic", "-Wshadow")


@dataclass(frozen=True, slots=True)
class Double:
    """One simulated library.

    Args:
        soname: the real library's.
        sources: files of native/tests/sim; flags: for the compiler.
        node: the version that the real library's symbols carry, "" for none.
        needs: sonames that it is linked with, beside the device.
    """

    soname: str
    sources: tuple[str, ...]
    flags: tuple[str, ...] = ()
    node: str = ""
    needs: tuple[str, ...] = ()

    @property
    def exports(self) -> str:
        """What the version script lets out."""
        return "global: cu*; nccl*; mc*; hip*; acl*; Hccl*; local: *;"


def _below(vendor: str) -> tuple[str, ...]:
    return ("below_driver.c",) if vendor == "CUDA" else ("below_runtime.c",)


def _family(vendor: str, runtime: str, blas: str, lt: str, ccl: str, node: str) -> list[Double]:
    flag = (f"-DSIM_{vendor}",)
    needs = () if vendor == "CUDA" else (runtime,)
    own = ("below_driver.c",) if vendor == "CUDA" else ("below_core.c", "modules.c")
    nodes = (runtime, blas, lt) if node == "soname" else (node,) * 3
    return [
        Double(runtime, ("runtime.c", *own), flag, nodes[0]),
        Double(blas, ("blas.c", *_below(vendor)), flag, nodes[1], needs),
        Double(lt, ("blaslt.c", *_below(vendor)), flag, nodes[2], needs),
        Double(ccl, ("ccl.c",), flag),
    ]


_CUDA = _family(
    "CUDA", "libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libnccl.so.2", "soname"
)
_MACA = _family("MACA", "libmcruntime.so", "libmcblas.so", "libmcblasLt.so", "libmccl.so", "")
_HIP = _family(
    "HIP", "libamdhip64.so.6", "libhipblas.so.2", "libhipblaslt.so.0", "librccl.so.1", ""
)
DOUBLES = {
    "cuda": [Double("libcuda.so.1", ("driver.c",)), *_CUDA],
    "maca": _MACA,
    "hip": [Double(_HIP[0].soname, _HIP[0].sources, _HIP[0].flags, "hip_4.2"), *_HIP[1:]],
    "ascend": [Double("libascendcl.so", ("acl.c",)), Double("libhccl.so", ("hccl.c",))],
}


def build_device(folder: Path, *flags: str) -> Path:
    """The simulated device itself, which every library stands on."""
    return compile_c(
        folder / "libsimdevice.so", [SIM / name for name in _CORE], *_shared("libsimdevice.so"),
        *flags,
    )  # fmt: skip


def build_double(folder: Path, double: Double, *flags: str) -> Path:
    """One library, in a folder that holds the device."""
    script = folder / f"{double.soname}.map"
    script.write_text(f"{double.node} {{ {double.exports} }};\n")
    linked = [str(folder / name) for name in ("libsimdevice.so", *double.needs)]
    return compile_c(
        folder / double.soname, [SIM / name for name in double.sources], *_shared(double.soname),
        f"-Wl,--version-script={script}", *double.flags, *linked, "-ldl", *flags,
    )  # fmt: skip


def _shared(soname: str) -> tuple[str, ...]:
    return (
        *_STRICT, "-shared", "-fPIC", "-fvisibility=hidden", f"-Wl,-soname,{soname}",
        "-Wl,-rpath,$ORIGIN", "-Wl,-z,defs",
    )  # fmt: skip


def build_platforms(folder: Path, platforms: Sequence[str] = PLATFORMS) -> None:
    """The device and all libraries of the platforms."""
    build_device(folder)
    wanted = [double for platform in platforms for double in DOUBLES[platform]]
    with ThreadPoolExecutor(2) as pool:
        for round_ in (
            [double for double in wanted if not double.needs],
            [double for double in wanted if double.needs],
        ):
            list(pool.map(lambda double: build_double(folder, double), round_))


def kept_platforms() -> Path:
    """A folder with the device and all libraries, made unless an earlier run has."""
    return kept(c_compiler(), ["doubles"], build_platforms)


def build_client(
    output: Path, libraries: Path, platform: str, *flags: str, sources: Sequence[str] = ()
) -> Path:
    """A program of native/tests/clients, linked with a platform's libraries.

    Args:
        output: the program; libraries: the folder of the doubles.
        sources: its files; by default those of the platform's scenes.
    """
    if not sources:
        sources = ("ascend.c", "client.c") if platform == "ascend" else _ACCELERATOR
        sources = (*sources, "drivers.c") if platform == "cuda" else sources
    linked = ["libsimdevice.so", *(double.soname for double in DOUBLES[platform])]
    return compile_c(
        output, [CLIENTS / name for name in sources], *_STRICT, f"-DSIM_{platform.upper()}",
        f"-Wl,-rpath,{libraries}", "-Wl,--no-as-needed",
        *(str(libraries / name) for name in linked), "-ldl", *flags,
    )  # fmt: skip
