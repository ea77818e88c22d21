"""Who is told of incidents, as a service of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from relkit.findings import Report, Status
from relkit.launch.incidents.command import IncidentCommand
from relkit.launch.incidents.incident import Incident, kind_of
from relkit.launch.job.service import Job, Service


class Listener(Protocol):
    """Is told of incidents and network checks; may be by any thread, and does not wait."""

    network_check: Report | None

    def tell(self, incident: Incident) -> None:
        """Note an incident."""


class IncidentService(Service):
    """Passes on what was judged; lets the command end before the launcher does.

    Args:
        command: of the site; None for none.
        listener: is told as well.
    """

    def __init__(self, command: IncidentCommand | None, listener: Listener) -> None:
        self._command, self._listener = command, listener
        self._job_id = ""

    def job_begins(self, job: Job) -> None:
        """See Service."""
        self._job_id = str(job.rendezvous.get_run_id())

    def tell(self, incident: Incident) -> None:
        """Tell of a hang or a failure."""
        self._listener.tell(incident)
        if self._command is not None:
            self._command.tell(incident)

    def tell_check(self, report: Report, path: Path | None) -> None:
        """Tell of a network check, which is an incident if it has found something.

        Args:
            path: the report on disk; None where it could not be written.
        """
        self._listener.network_check = report
        if report.status is Status.FAIL:
            self.tell(Incident(kind_of(report), self._job_id, report, path))

    def close(self) -> None:
        """See Service."""
        if self._command is not None:
            self._command.close()
