"""The names of the probes; imports nothing, so that --help can list them quickly."""

from __future__ import annotations

TORCH_PROBES = ("gloo", "nccl", "hccl")
PROBES = ("tcp", *TORCH_PROBES, "ib")
