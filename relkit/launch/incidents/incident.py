"""What happened to a job, as those are told who did not watch its terminal."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from relkit.findings import Report
from relkit.text.printable import printable_line

SCHEMA = "relkit.incident/1"
_MAX_TITLE = 500


class Kind(str, Enum):
    """What sort of incident it is."""

    HANG = "hang"
    FAILURE = "failure"
    NETWORK_CHECK = "network check"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident, judged.

    Args:
        kind: of the incident.
        job_id: the run.
        report: the verdict on it.
        path: the report on disk; None where it could not be written.
    """

    kind: Kind
    job_id: str
    report: Report
    path: Path | None

    @property
    def title(self) -> str:
        """The verdict in one line, of the worst finding."""
        titles = [finding.title for finding in self.report.findings]
        return titles[0][:_MAX_TITLE] if titles else f"job {self.job_id}: {self.kind}"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, for the command's stdin."""
        return {
            "schema": SCHEMA,
            "kind": self.kind.value,
            "job_id": self.job_id,
            "host": socket.gethostname(),
            "title": self.title,
            "report_path": None if self.path is None else str(self.path.absolute()),
            "report": self.report.to_json(),
        }

    def to_line(self) -> bytes:
        """As one line of JSON."""
        return json.dumps(self.to_json()).encode() + b"\n"

    def variables(self) -> dict[str, str]:
        """The same in short, for the command's environment, where not every character can be."""
        return {
            "RELKIT_INCIDENT": self.kind.value,
            "RELKIT_INCIDENT_JOB": printable_line(self.job_id),
            "RELKIT_INCIDENT_TITLE": printable_line(self.title),
            "RELKIT_INCIDENT_REPORT": "" if self.path is None else str(self.path.absolute()),
        }


def kind_of(report: Report) -> Kind:
    """What sort of incident a report is about."""
    if report.command == "netcheck":
        return Kind.NETWORK_CHECK
    return Kind.FAILURE if report.facts.get("is_hang") is False else Kind.HANG
