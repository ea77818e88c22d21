"""What the probes are called; imports nothing, so that a command line can list them at once."""

from __future__ import annotations

TORCH_PROBES = ("gloo", "nccl", "hccl")
PROBES = ("tcp", *TORCH_PROBES, "ib")
