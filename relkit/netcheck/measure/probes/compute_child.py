"""The child of the compute probe: keeps each device busy for a moment, and times it.

A separate process releases its buffers and its BLAS threads, and a hang in it is contained.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relkit.netcheck.measure.probes.child import read_order, return_result

_MATRIX = 512
_COPY_BYTES = 64 << 20
_DEVICE_MATRIX = 8192
_DEVICE_COPY_BYTES = 1 << 30
# torch takes seconds to import: only where a driver's device file exists.
_DRIVERS = {"cuda": ("/dev/nvidiactl", "/dev/kfd", "/dev/mxcd"), "npu": ("/dev/davinci_manager",)}


def cpu(time_s: float) -> dict[str, float]:
    """Scores of the CPU, measured with numpy for about `time_s`."""
    import numpy

    left = numpy.ones((_MATRIX, _MATRIX), dtype=numpy.float32)
    right, out = numpy.ones_like(left), numpy.empty_like(left)
    product_s = mean_s(lambda: numpy.matmul(left, right, out=out), time_s / 2)
    source = numpy.ones(_COPY_BYTES, dtype=numpy.uint8)
    target = numpy.zeros_like(source)
    copy_s = mean_s(lambda: numpy.copyto(target, source), time_s / 2)
    return _scores(_MATRIX, product_s, _COPY_BYTES, copy_s)


def accelerators(time_s: float) -> dict[str, Any]:
    """Scores of every accelerator that torch sees; none without a driver."""
    scored: dict[str, Any] = {}
    for kind in driver_kinds():
        try:
            scored |= _of_kind(kind, time_s)
        except (ImportError, RuntimeError, AttributeError) as error:
            return {"devices": scored, "device_error": f"{kind}: {error}".splitlines()[0]}
    return {"devices": scored}


def driver_kinds() -> list[str]:
    """Kinds of accelerators, by torch's names, for which this host has a driver."""
    return [kind for kind, files in _DRIVERS.items() if any(Path(f).exists() for f in files)]


def _of_kind(kind: str, time_s: float) -> dict[str, dict[str, float]]:
    import torch

    module = getattr(torch, kind)
    scored = {}
    for number in range(module.device_count() if module.is_available() else 0):
        device = torch.device(kind, number)
        square = torch.ones((_DEVICE_MATRIX, _DEVICE_MATRIX), dtype=torch.float16, device=device)
        out = torch.empty_like(square)
        source = torch.ones(_DEVICE_COPY_BYTES, dtype=torch.uint8, device=device)
        target = torch.zeros_like(source)

        def product(left: torch.Tensor = square, to: torch.Tensor = out, at: Any = device) -> None:  # noqa: ANN401
            torch.matmul(left, left, out=to)
            module.synchronize(at)

        def copy(left: torch.Tensor = source, to: torch.Tensor = target, at: Any = device) -> None:  # noqa: ANN401
            to.copy_(left)
            module.synchronize(at)

        scores = _scores(
            _DEVICE_MATRIX, mean_s(product, time_s / 2),
            _DEVICE_COPY_BYTES, mean_s(copy, time_s / 2),
        )  # fmt: skip
        scored[f"{kind}:{number}"] = scores
    return scored


def _scores(matrix: int, product_s: float, copy_bytes: int, copy_s: float) -> dict[str, float]:
    return {
        "compute_gflops": round(2 * matrix**3 / product_s / 1e9, 2),
        "memory_gbps": round(2 * copy_bytes / copy_s / 1e9, 2),
    }


def mean_s(work: Callable[[], object], time_s: float) -> float:
    """Mean time of one `work`, repeated for about `time_s`, after one that is not counted.

    The mean, not the median: a core that is shared or throttled runs at full speed most of the
    time and not at all for the rest.
    """
    work()
    count, begin_s = 0, time.perf_counter()
    while count == 0 or time.perf_counter() - begin_s < time_s:
        work()
        count += 1
    return (time.perf_counter() - begin_s) / count


def main() -> None:
    """Read the order, measure, return the result."""
    time_s = float(read_order()["time_s"])
    return_result({**cpu(time_s), **{"devices": {}}, **accelerators(time_s)})


if __name__ == "__main__":
    main()
