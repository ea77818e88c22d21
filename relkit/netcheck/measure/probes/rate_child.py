"""The child of the rates probe: times a product on each device, in the device's own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from relkit.netcheck.measure.probes.child import read_order, return_result
from relkit.netcheck.measure.probes.compute_child import driver_kinds

_MATRIX, _DEVICE_MATRIX = 512, 8192
# Of one round, s; a CPU that is shared with others has that much longer for it.
_CPU_S, _CPU_MAX_S, _DEVICE_S = 0.1, 0.5, 0.1
# Products that a device has in its queue: it does not wait for the CPU between them.
_QUEUED = 8


def cpu_rates(rounds: int) -> list[float]:
    """Of one thread by its CPU time, GFLOP/s: whoever shares its core does not count."""
    import numpy

    left = numpy.ones((_MATRIX, _MATRIX), dtype=numpy.float32)
    out = numpy.empty_like(left)
    numpy.matmul(left, left, out=out)
    return [_cpu_round(lambda: numpy.matmul(left, left, out=out)) for _ in range(rounds)]


def _cpu_round(product: Callable[[], object]) -> float:
    count, begin_s, end_s = 0, time.thread_time(), time.monotonic() + _CPU_MAX_S
    used_s = 0.0
    while used_s <= 0.0 or (used_s < _CPU_S and time.monotonic() < end_s):
        product()
        count += 1
        used_s = time.thread_time() - begin_s
    return gflops(_MATRIX, used_s / count)


def device_rates(kind: str, rounds: int) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Of every device of a kind that torch sees, by its own events, GFLOP/s; and their models."""
    import torch

    module = getattr(torch, kind)
    rates, models = dict[str, list[float]](), dict[str, str]()
    for number in range(module.device_count() if module.is_available() else 0):
        with module.device(number):
            square = torch.ones(
                (_DEVICE_MATRIX, _DEVICE_MATRIX), dtype=torch.float16, device=f"{kind}:{number}"
            )
            out = torch.empty_like(square)
            product = partial(torch.matmul, square, square, out=out)
            # One more: the clocks of an idle device rise in the first round.
            measured = [_device_round(module, product) for _ in range(rounds + 1)]
        rates[f"{kind}:{number}"] = measured[1:]
        models[f"{kind}:{number}"] = str(module.get_device_name(number))
    return rates, models


def _device_round(module: Any, product: Callable[[], object]) -> float:  # noqa: ANN401
    count, spent_ms, end_s = 0, 0.0, time.monotonic() + _DEVICE_S
    while count == 0 or time.monotonic() < end_s:
        begin, end = (module.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(_QUEUED):
            product()
        end.record()
        end.synchronize()
        spent_ms += begin.elapsed_time(end)
        count += _QUEUED
    return gflops(_DEVICE_MATRIX, spent_ms / 1000.0 / count)


def gflops(matrix: int, product_s: float) -> float:
    """Of a product of two square matrices, GFLOP/s."""
    return round(2 * matrix**3 / max(product_s, 1e-9) / 1e9, 2)


def cpu_model(text: str) -> str:
    """The first model name in /proc/cpuinfo; "" where there is none."""
    lines = (line.partition(":") for line in text.splitlines())
    return next((name.strip() for key, _, name in lines if key.strip() == "model name"), "")


def measure(rounds: int) -> dict[str, Any]:
    """What the child returns; see measure_rates."""
    rates, models = dict[str, list[float]](), dict[str, str]()
    for kind in driver_kinds():
        try:
            new, named = device_rates(kind, rounds)
        except (ImportError, RuntimeError, AttributeError) as error:
            why = f"{kind}: {error}".splitlines()[0]
            return {"rates": rates, "models": models, "device_error": why}
        rates, models = rates | new, models | named
    if not rates:
        rates = {"cpu": cpu_rates(rounds)}
        models = {"cpu": cpu_model(Path("/proc/cpuinfo").read_text(errors="replace"))}
    return {"rates": rates, "models": models}


def main() -> None:
    """Read the order, measure, return the result."""
    return_result(measure(int(read_order()["rounds"])))


if __name__ == "__main__":
    main()
