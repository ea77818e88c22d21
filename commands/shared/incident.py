"""What `launch` and `run` do with an incident: show the verdict, write the timeline folder."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from relkit.commands.shared.incident_page import IncidentPage
from relkit.errors import RelkitError
from relkit.findings import Report
from relkit.hang.deaths import is_before_first_step
from relkit.hang.model import HangVerdict, JobView
from relkit.hang_picture.actions import Action
from relkit.launch.hang import timeline
from relkit.launch.hang.monitor import Monitor
from relkit.launch.incidents.incident import Incident, kind_of
from relkit.launch.job.on_hang import OnHang
from relkit.launch.job.settings import MonitorSettings
from relkit.log_lines import Level, Line, say_report, warning
from relkit.log_lines import say as log
from relkit.output import as_json, write_atomic
from relkit.stacks.model import RankDump

REPORT = "report.json"
_BY_ACTION = {
    OnHang.REPORT: "no process is touched",
    OnHang.SAVE: "a job under try-to-persist is saved; any other is left as it is",
    OnHang.RESTART: "the workers are started again, if a restart is left",
    OnHang.ABORT: "the job is ended",
}


def keep_report(report: Report, path: Path) -> bool:
    """Write a report into the timeline folder, as JSON; False, and a line, where that fails."""
    try:
        write_atomic(path, as_json(report))
    except (RelkitError, OSError) as error:
        log_unwritten(error)
        return False
    return True


def log_unwritten(error: Exception) -> None:
    """What was to be in the timeline folder is not: the job goes on."""
    log(warning(f"the timeline folder could not be written: {error}"))


@dataclass(frozen=True, slots=True)
class Publisher:
    """Shows the result of an incident, and writes it to the timeline folder.

    Args:
        folder: the timeline folder, writable.
        on_hang: what is done about a hang.
        page: draws the pictures.
        of_all_nodes: the folder that holds those of all nodes, where each has its own.
        tell: gets each incident, once its report is on disk; must neither raise nor wait.
    """

    folder: Path
    on_hang: OnHang
    page: IncidentPage
    of_all_nodes: Path | None = None
    tell: Callable[[Incident], None] = lambda _incident: None

    def publish(
        self, job: JobView, verdict: HangVerdict, report: Report, dumps: Sequence[RankDump]
    ) -> None:
        """The verdict on stderr and the evidence on disk at once; the page follows beside the job.

        What is to be done about the job waits for this call, and not for the page.
        """
        path: Path | None = self.folder / REPORT
        if verdict.all_alike and len(report.findings) == 1 and is_before_first_step(job.ranks):
            path = self._publish_briefly(report)
        elif not self._publish_whole(job, report, dumps):
            path = None
        self.tell(Incident(kind_of(report), job.job_id, report, path))

    def _publish_whole(self, job: JobView, report: Report, dumps: Sequence[RankDump]) -> bool:
        say_report(report, apart=True)
        try:
            moved = timeline.rotate(self.folder)
            timeline.write_dumps(self.folder, dumps)
            write_atomic(self.folder / REPORT, as_json(report))
        except (RelkitError, OSError) as error:
            # The verdict has been shown; a full disk must not take the monitor down with it.
            log_unwritten(error)
            return False
        if moved:
            log(f"the files of the earlier incident are in {moved}")
        self.page.begin(
            self._done_so_far(report, job, len(dumps)), partial(self._show, job, len(dumps))
        )
        return True

    def _done_so_far(self, report: Report, job: JobView, captured: int) -> list[Action]:
        now_s = time.time()
        actions = [
            Action(report.started, job.trigger),
            Action(now_s, f"{captured} of {job.world_size} ranks captured, and judged"),
        ]
        if report.facts.get("is_hang") is False:
            return actions
        action = self.on_hang if report.facts.get("action") else OnHang.REPORT
        return [*actions, Action(now_s, f"{_BY_ACTION[action]} (--on-hang {self.on_hang})")]

    def _show(self, job: JobView, captured: int, drawn: Sequence[Path]) -> None:
        text = f"{captured} of {job.world_size} ranks captured; see:"
        if job.is_sample:
            text = (
                f"the stacks of {captured} of {job.world_size} ranks were brought here; those of"
                " the others are on their nodes: relkit hang collect brings them. See:"
            )
        log(text, files=[str(path) for path in (*drawn, self.folder / REPORT)])
        if self.of_all_nodes is not None or not drawn:
            whole = shlex.quote(str(self.of_all_nodes or self.folder))
            nodes = " of all nodes, where they share that folder" if self.of_all_nodes else ""
            log(f"one page{nodes}: relkit report {whole}")

    def _publish_briefly(self, report: Report) -> Path | None:
        """Where all ranks failed alike before the first step, stacks would show nothing."""
        (finding,) = report.findings
        log(Line(finding.title, Level.ERROR, finding.id))
        try:
            timeline.rotate(self.folder)
        except OSError as error:
            log_unwritten(error)
            return None
        path = self.folder / REPORT
        if not keep_report(report, path):
            return None
        log(f"{finding.advice} The report is {path}.")
        return path

    def write_dumps(self, dumps: Sequence[RankDump]) -> None:
        """Write the dumps of a node that does not decide."""
        timeline.write_dumps(self.folder, dumps)


def monitor_into(
    folder: Path,
    settings: MonitorSettings,
    *,
    of_all_nodes: Path | None = None,
    tell: Callable[[Incident], None] = lambda _incident: None,
) -> tuple[Monitor, IncidentPage]:
    """A monitor that shows and writes what it finds as Publisher does, into a timeline folder.

    Returns:
        The monitor; and the page of what it finds, which wants to know what is done about it.
    """
    page = IncidentPage(folder, log)
    publisher = Publisher(folder, settings.on_hang, page, of_all_nodes, tell)
    monitor = Monitor(
        settings,
        publish=publisher.publish,
        write_dumps=publisher.write_dumps,
        log=log,
        finish=page.close,
    )
    return monitor, page


def choose_timeline(asked: Path | None) -> Path:
    """The timeline folder to use; logs where it is not the requested one."""
    folder, note = timeline.choose_folder(asked or timeline.default_folder())
    if note:
        log(warning(note))
    return folder
