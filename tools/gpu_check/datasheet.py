"""What vendors state for whole devices: dense float16 products, and memory bandwidth."""

from __future__ import annotations

# Name as torch gives it, in part -> (TFLOP/s of dense float16 with tensor cores, GB/s).
# From NVIDIA's public data sheets; the SXM variants where there are several.
DEVICES: tuple[tuple[str, float, float], ...] = (
    ("H200", 989.0, 4800.0),
    ("H100 PCIe", 756.0, 2000.0),
    ("H100", 989.0, 3350.0),
    ("A100-SXM4-80GB", 312.0, 2039.0),
    ("A100", 312.0, 1555.0),
    ("L40S", 362.0, 864.0),
    ("L4", 121.0, 300.0),
    ("A10", 125.0, 600.0),
    ("V100", 125.0, 900.0),
    ("T4", 65.0, 320.0),
)


def stated(name: str) -> tuple[float, float] | None:
    """(TFLOP/s, GB/s) of a device, None where it is not listed."""
    return next(((t, g) for part, t, g in DEVICES if part in name), None)
