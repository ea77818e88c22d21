"""What `launch` and `run` do with an incident: show the verdict, write the timeline folder."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from relkit.errors import RelkitError
from relkit.findings import Report
from relkit.hang.deaths import is_before_first_step
from relkit.hang.model import HangVerdict, JobView
from relkit.launch.hang import timeline
from relkit.launch.hang.monitor import Monitor
from relkit.launch.job.settings import MonitorSettings
from relkit.output import as_text, shown, use_colour, write_atomic
from relkit.stacks.model import RankDump


def log(line: str) -> None:
    """One line to the person at the terminal, apart from the job's own output."""
    click.echo(f"relkit: {shown(line)}", err=True)


def keep_report(report: Report, path: Path) -> bool:
    """Write a report into the timeline folder, as JSON; False, and a line, where that fails."""
    try:
        write_atomic(path, json.dumps(report.to_json(), indent=1) + "\n")
    except (RelkitError, OSError) as error:
        log_unwritten(error)
        return False
    return True


def log_unwritten(error: Exception) -> None:
    """What was to be in the timeline folder is not: the job goes on."""
    log(f"the timeline folder could not be written: {error}")


@dataclass(frozen=True, slots=True)
class Publisher:
    """Shows the result of an incident, and writes it to the timeline folder.

    Args:
        folder: the timeline folder, writable.
        of_all_nodes: the folder that holds those of all nodes, where each has its own.
    """

    folder: Path
    of_all_nodes: Path | None = None

    def prepare(self) -> None:
        """Import what publish() needs: not at the top, as the workers would start later for it."""
        import relkit.reports.timeline_folder
        import relkit.stacks.merge  # noqa: F401

    def publish(
        self, job: JobView, verdict: HangVerdict, report: Report, dumps: Sequence[RankDump]
    ) -> None:
        """The verdict on stderr at once; then the dumps, stacks, SVGs and reports."""
        if verdict.all_alike and len(report.findings) == 1 and is_before_first_step(job.ranks):
            self._publish_briefly(report)
            return
        from relkit.reports import timeline_folder
        from relkit.stacks.merge import merge_dumps

        # One write: the job's own lines must not land inside the verdict.
        sys.stderr.write("\n" + as_text(report, colour=use_colour(sys.stderr)) + "\n")
        sys.stderr.flush()
        try:
            moved = timeline.rotate(self.folder)
            timeline.write_dumps(self.folder, dumps)
            merged = merge_dumps(dumps, job.world_size)
            written = timeline_folder.write(self.folder, report, merged)
        except (RelkitError, OSError) as error:
            # The verdict has been shown; a full disk must not take the monitor down with it.
            log_unwritten(error)
            return
        if moved:
            log(f"the files of the earlier incident are in {moved}")
        if job.is_sample:
            log(
                f"the stacks of {len(dumps)} of {job.world_size} ranks were brought here; those of"
                " the others are on their nodes: relkit hang collect brings them. See:"
            )
        else:
            log(f"{len(dumps)} of {job.world_size} ranks captured; see:")
        for path in written:
            click.echo(f"  {path}", err=True)
        whole = shlex.quote(str(self.of_all_nodes or self.folder))
        nodes = ", of all nodes where they share that folder" if self.of_all_nodes else ""
        log(f"one page with all of it{nodes}: relkit report {whole}")

    def _publish_briefly(self, report: Report) -> None:
        """Where all ranks failed alike before the first step, stacks would show nothing."""
        (finding,) = report.findings
        log(finding.title)
        try:
            timeline.rotate(self.folder)
        except OSError as error:
            log_unwritten(error)
            return
        path = self.folder / "report.json"
        if keep_report(report, path):
            log(f"{finding.advice} The report is {path}.")

    def write_dumps(self, dumps: Sequence[RankDump]) -> None:
        """Write the dumps of a node that does not decide."""
        timeline.write_dumps(self.folder, dumps)


def monitor_into(
    folder: Path, settings: MonitorSettings, *, of_all_nodes: Path | None = None
) -> Monitor:
    """A monitor that shows and writes what it finds as Publisher does, into a timeline folder."""
    publisher = Publisher(folder, of_all_nodes)
    return Monitor(
        settings,
        publish=publisher.publish,
        write_dumps=publisher.write_dumps,
        log=log,
        prepare=publisher.prepare,
    )


def choose_timeline(asked: Path | None) -> Path:
    """The timeline folder to use; logs where it is not the requested one."""
    folder, note = timeline.choose_folder(asked or timeline.default_folder())
    if note:
        log(note)
    return folder
