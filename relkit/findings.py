"""Status, Finding and Report: the one exchange type between diagnosis and every output."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from relkit import __version__
from relkit.errors import EXIT_OK, EXIT_PROBLEM, EXIT_UNKNOWN


class Status(str, Enum):
    """How bad it is. `fail > unknown > warn > ok` when combining; `skip` never counts."""

    OK = "ok"
    WARN = "warn"
    UNKNOWN = "unknown"
    FAIL = "fail"
    SKIP = "skip"

    def __str__(self) -> str:
        return self.value


DOCS_VARIABLE = "RELKIT_DOCS_URL"
# RK-FAMILY-NNN -> docs/findings/PAGE.md
DOCS_PAGES = {
    "CKPT": "ckpt",
    "DATA": "data",
    "DEATH": "death",
    "DEMO": "doctor",
    "DOC": "doctor",
    "FLASH": "flash",
    "HANG": "hang",
    "HIST": "history",
    "JOB": "job",
    "LNK": "linkcheck",
    "NET": "netcheck",
    "NODE": "nodes",
    "STK": "stacks",
    "STRAG": "straggler",
    "TL": "timeline",
    "TOP": "topology",
    "TTP": "ttp",
    "WHY": "why",
}

_ORDER = (Status.SKIP, Status.OK, Status.WARN, Status.UNKNOWN, Status.FAIL)


def docs_of(finding_id: str) -> str:
    """Where the documentation explains a finding id; "" for an id of no known family.

    Returns:
        The section's address on the site that RELKIT_DOCS_URL names (http, https or file), else
        its place in relkit's repository: docs/findings/hang.md#rk-hang-001.
    """
    page = DOCS_PAGES.get(finding_id.removeprefix("RK-").rpartition("-")[0])
    if page is None:
        return ""
    site = os.environ.get(DOCS_VARIABLE, "").rstrip("/")
    if site.startswith(("https://", "http://", "file:///")):
        return f"{site}/findings/{page}.html#{finding_id.lower()}"
    return f"docs/findings/{page}.md#{finding_id.lower()}"


def worst(statuses: Iterable[Status]) -> Status:
    """Combine statuses; nothing at all is UNKNOWN, because no data never looks healthy."""
    counted = [status for status in statuses if status is not Status.SKIP]
    return max(counted, key=_ORDER.index) if counted else Status.UNKNOWN


@dataclass(frozen=True)
class Evidence:
    """One measured fact behind a finding.

    Args:
        name: what was measured, e.g. "in flight".
        value: number or short text, as measured.
        unit: "s", "GB/s", ...; empty for text.
        threshold: the bound it was held against, in the same unit; None where there is none.
        how: the source: a file in /proc, a recorder field, a command.
    """

    name: str
    value: float | int | str
    unit: str = ""
    threshold: float | int | str | None = None
    how: str = ""


@dataclass(frozen=True)
class Finding:
    """One thing that is (or is not) wrong, where, how we know, and what to do.

    Args:
        id: stable and greppable, e.g. "RK-HANG-001"; docs/reference/findings.md lists all.
        status: severity.
        title: one sentence a person can act on at three in the morning.
        ranks: folded global ranks ("0-1,3"), or "".
        nodes: folded host names ("node[1-4]"), or "".
        reasons: why relkit believes it, strongest first.
        evidence: the measured facts.
        advice: what to do next.
    """

    id: str
    status: Status
    title: str
    ranks: str = ""
    nodes: str = ""
    reasons: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    advice: str = ""

    def to_json(self) -> dict[str, Any]:
        """The finding as plain JSON types."""
        plain = asdict(self)
        plain["status"] = self.status.value
        plain["docs"] = docs_of(self.id)
        return plain


@dataclass(frozen=True)
class Report:
    """What one command found. Table, JSON, HTML and the exit code all derive from it.

    Args:
        command: the subcommand ("hang", "doctor", "stacks"); names the JSON schema.
        findings: worst first where the command has an opinion.
        facts: command-specific top-level JSON keys (plain JSON types), e.g. {"culprits": [2]}.
        started: Unix time, s.
        duration_s: how long the command took.
        argv: the command line that made it, to reproduce.
    """

    command: str
    findings: tuple[Finding, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    started: float = field(default_factory=time.time)
    duration_s: float = 0.0
    argv: tuple[str, ...] = ()

    @property
    def status(self) -> Status:
        """The worst finding's status."""
        return worst(finding.status for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """0 nothing wrong (warnings included), 1 problem found, 3 could not tell."""
        return {Status.FAIL: EXIT_PROBLEM, Status.UNKNOWN: EXIT_UNKNOWN}.get(self.status, EXIT_OK)

    def to_json(self) -> dict[str, Any]:
        """One document; keys are only ever added within a schema number."""
        return {
            "schema": f"relkit.{self.command}/1",
            "status": self.status.value,
            **self.facts,
            "findings": [finding.to_json() for finding in self.findings],
            "meta": {
                "version": __version__,
                "host": os.uname().nodename,
                "started": self.started,
                "duration_s": round(self.duration_s, 6),
                "argv": list(self.argv),
                "pid": os.getpid(),
            },
        }
