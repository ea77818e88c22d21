"""NVIDIA's nvbandwidth: one run measures every pair of GPUs; its JSON is read here."""

from __future__ import annotations

import json
import math
from typing import Any

# In the write test the source's own GPU pushes the data: rows are sources, columns are targets.
TEST = "device_to_device_memcpy_write_ce"
ARGUMENTS = ("-j", "-t", TEST)
Matrix = dict[tuple[int, int], float]


def parse_matrix(text: str) -> Matrix:
    """(source, target) -> MB/s, from the tool's JSON.

    Cells are text ("373.22", in GB/s) or "N/A" where two GPUs cannot reach each other; those are
    left out, as is all else that is no plain positive number.

    Raises:
        ValueError: this is not the tool's JSON, or the test did not pass.
    """
    start = text.find("{")
    try:
        document: Any = json.JSONDecoder().raw_decode(text[start:])[0] if start >= 0 else None
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    root = document.get("nvbandwidth") if isinstance(document, dict) else None
    cases = root.get("testcases") if isinstance(root, dict) else None
    for case in cases if isinstance(cases, list) else ():
        if isinstance(case, dict) and case.get("name") == TEST:
            if case.get("status") != "Passed":
                raise ValueError(f"nvbandwidth says {str(case.get('status'))[:80]!r}")
            return _matrix(case.get("bandwidth_matrix"))
    raise ValueError(f"no test {TEST} in nvbandwidth's output")


def _matrix(rows: object) -> Matrix:
    matrix: Matrix = {}
    for source, row in enumerate(rows if isinstance(rows, list) else ()):
        for target, cell in enumerate(row if isinstance(row, list) else ()):
            value = _number(cell)
            if value > 0 and source != target:
                matrix[source, target] = value * 1e3
    return matrix


def _number(cell: object) -> float:
    if isinstance(cell, bool) or not isinstance(cell, (str, int, float)):
        return 0.0
    try:
        value = float(cell)
    except (ValueError, OverflowError):
        return 0.0
    return value if math.isfinite(value) and value < 1e6 else 0.0
