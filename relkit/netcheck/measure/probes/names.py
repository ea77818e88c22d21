"""The names of the probes; imports nothing, so that --help can list them quickly."""

from __future__ import annotations

TORCH_PROBES = ("gloo", "nccl", "hccl")
PROBES = ("tcp", *TORCH_PROBES, "ib")
AUTO = "auto"
# What a job would use comes first; tcp is for hosts that can run none of these.
AUTO_PROBES = ("nccl", "hccl", "ib")
