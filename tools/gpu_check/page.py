"""Outcomes -> the results file (JSON) and docs/reference/gpu-results.md."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tools.gpu_check.outcome import Outcome

SCHEMA = "relkit.gpu-check/1"


def document(machine: Mapping[str, str], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """All of it as plain JSON types."""
    return {
        "schema": SCHEMA,
        "date": time.strftime("%Y-%m-%d"),
        "machine": dict(machine),
        "checks": [
            {
                "name": one.name, "status": one.status.value, "sentence": one.sentence,
                "figures": dict(one.figures),
            }
            for one in outcomes
        ],
    }  # fmt: skip


def markdown(found: Mapping[str, Any]) -> str:
    """The page that keeps the newest results."""
    machine = found["machine"]
    lines = [
        "# Results on a real GPU", "",
        "Written by `make gpu-check`; the newest run replaces the older one.", "",
        f"{found['date']}: " + ", ".join(f"{name} {value}" for name, value in machine.items()),
        "", "| check | result | what was seen |", "|---|---|---|",
    ]  # fmt: skip
    for check in found["checks"]:
        sentence = str(check["sentence"]).replace("|", "/").replace("\n", " ")
        lines.append(f"| {check['name']} | {check['status']} | {sentence} |")
    return "\n".join(lines) + "\n"
