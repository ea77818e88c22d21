"""NVLink lanes and their error counters through nvidia-ml-py, where it is installed.

Run as `python -m relkit.linkcheck.nvlink_counters` it prints what it reads, so that a driver that
no longer answers stops a child and not the check.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

from relkit.linkcheck.model import Counter
from relkit.linkcheck.tool import run_module
from relkit.text.whole_number import whole_number

_MAX_LANES = 36
_ERRORS = {
    "replay errors": "NVML_NVLINK_ERROR_DL_REPLAY",
    "recovery errors": "NVML_NVLINK_ERROR_DL_RECOVERY",
    "CRC errors": "NVML_NVLINK_ERROR_DL_CRC_FLIT",
}
Reading = dict[tuple[int, int, str], int]


def read_counters(timeout_s: float) -> Reading:
    """(gpu, lane, name) -> value, asked of a child; empty where there is nothing to read."""
    run = run_module("relkit.linkcheck.nvlink_counters", (), timeout_s)
    if run.exit_code != 0:
        return {}
    reading: Reading = {}
    for line in run.output.splitlines():
        words = line.split("\t")
        if len(words) != 4:
            continue
        gpu, lane, value = (whole_number(words[at]) for at in (0, 1, 3))
        if gpu is not None and lane is not None and value is not None:
            reading[gpu, lane, words[2]] = value
    return reading


def compare(before: Reading, after: Reading) -> tuple[Counter, ...]:
    """Both readings side by side; what stands in one only cannot be compared and is left out."""
    return tuple(
        Counter(*key, before[key], after[key]) for key in sorted(before.keys() & after.keys())
    )


def _read() -> Iterator[tuple[int, int, str, int]]:
    nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    for gpu in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(gpu)
        for lane in range(min(_MAX_LANES, getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18))):
            try:
                yield gpu, lane, "active", int(nvml.nvmlDeviceGetNvLinkState(handle, lane))
            except nvml.NVMLError:
                break
            for name, constant in _ERRORS.items():
                try:
                    number = getattr(nvml, constant)
                    value = nvml.nvmlDeviceGetNvLinkErrorCounter(handle, lane, number)
                except (AttributeError, nvml.NVMLError):
                    continue
                yield gpu, lane, name, int(value)


if __name__ == "__main__":
    try:
        for row in _read():
            print("\t".join(map(str, row)))
    except ImportError as problem:
        sys.exit(str(problem))
