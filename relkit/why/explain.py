"""Paths -> the report of why: collect, diagnose, show."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from relkit.findings import Report
from relkit.why.collect import collect
from relkit.why.diagnose import diagnose
from relkit.why.show import report_of


def explain(
    paths: Sequence[Path],
    *,
    argv: Sequence[str] = (),
    stdin: BinaryIO | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Why a job failed or hung, from whatever it left behind.

    Args:
        paths: files and folders; `-` is standard input.
        argv: the command line; stdin: of this process where left out.
        progress: called with how many files have been read, and how many there are.

    Raises:
        UsageProblem: a path does not exist, or a folder holds too many files.
    """
    began, started = time.monotonic(), time.time()
    evidence, hang = collect(paths, stdin=stdin, progress=progress)
    return report_of(
        evidence,
        diagnose(evidence),
        hang,
        argv=argv,
        started=started,
        duration_s=time.monotonic() - began,
    )
