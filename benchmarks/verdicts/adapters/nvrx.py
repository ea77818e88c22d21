"""NVIDIA Resiliency Extension: its analyzer of flight-recorder dumps."""

from __future__ import annotations

import logging
import re
import tempfile
from importlib import import_module
from pathlib import Path

from benchmarks.verdicts.adapters.model import Said
from benchmarks.verdicts.adapters.whole_dumps import Plain, dumps_in, write

_MODULE = "nvidia_resiliency_ext.attribution.trace_analyzer.fr_attribution"


class Nvrx:
    """`CollectiveAnalyzer` of nvidia-resiliency-ext (0.7.0), called as its service does.

    The ranks are those of its "hanging ranks". It is given what makes it answer: dumps that can be
    unpickled, under the name that it looks for, with the members of groups filled in where gloo
    leaves them out, and with calls under way as "scheduled", the only state that it looks at.
    """

    name = "NVRx"
    tells_cause = False
    names_ranks = True

    def __init__(self) -> None:
        # Before the fork, so that its start does not count.
        self._analyzer = import_module(_MODULE).CollectiveAnalyzer
        logging.getLogger().setLevel(logging.WARNING)

    def reads(self, evidence: frozenset[str]) -> bool:
        """Dumps."""
        return "dumps" in evidence

    def judge(self, folder: Path) -> Said:
        """Its answer."""
        dumps = {rank: _as_it_reads(dump) for rank, dump in dumps_in(folder).items()}
        with tempfile.TemporaryDirectory() as copies:
            write(dumps, Path(copies), "_dump_")
            analyzer = self._analyzer(
                {"fr_path": copies, "pattern": "_dump_*", "verbose": False, "health_check": False,
                 "threshold": None}
            )  # fmt: skip
            text = analyzer._loop.run_until_complete(analyzer.preprocess_FR_dumps())
            packed, _ = analyzer._loop.run_until_complete(analyzer.print_output(text))
        said = str(packed["hanging_ranks"])
        return Said([int(rank) for rank in re.findall(r"\d+", said)], "", said)


def _as_it_reads(dump: Plain) -> Plain:
    entries = [
        {**entry, "state": "scheduled"} if entry["state"] == "started" else entry
        for entry in dump["entries"]
    ]
    return {**dump, "entries": entries, "pg_status": dump.get("pg_status", {})}
