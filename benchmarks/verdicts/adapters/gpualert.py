"""GPUAlert: its classifier of what failed jobs have written."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from benchmarks.verdicts.adapters.model import Said

# Its label -> the cause as relkit calls it.
_CAUSES = {
    "GPU out-of-memory (CUDA OOM)": "device-oom",
    "NCCL communication error": "nccl",
    "CUDA runtime error": "device-error",
    "System out-of-memory (RAM)": "host-oom",
    "Segmentation fault": "segfault",
    "File not found": "missing-file",
    "Permission denied": "permission",
    "Missing Python module": "missing-module",
    "Division by zero": "division",
    "Tensor device mismatch": "device-mismatch",
    "NaN detected in loss": "nan",
    "Process killed by OS (OOM)": "oom-killer",
    "Python exception (traceback)": "exception",
    "Assertion failed": "assertion",
    "Python RuntimeError": "runtime",
}


class GpuAlert:
    """`parse_errors` of gpualert (0.1.6), on all text of the folder joined; it names no ranks.

    Its two labels for any exception count wherever relkit's cause may be a general one.
    """

    name = "gpualert"
    tells_cause = True
    names_ranks = False

    def __init__(self) -> None:
        self._parse = import_module("gpualert.parse_errors").parse_errors

    def reads(self, evidence: frozenset[str]) -> bool:
        """Logs."""
        return evidence == {"logs"}

    def judge(self, folder: Path) -> Said:
        """Its answer."""
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        text = "\n".join(path.read_text(errors="replace") for path in files)
        label = str(self._parse("", text, 0)).partition("\n")[0]
        return Said((), _CAUSES.get(label, ""), label)
