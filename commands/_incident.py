"""What `launch` and `run` do with an incident: show the verdict, write the timeline folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from relkit.errors import HookUnavailable, RelkitError
from relkit.findings import Report
from relkit.hang.model import JobView, Verdict
from relkit.hook import environment
from relkit.launch import timeline
from relkit.launch.job import Say, safe_job_id
from relkit.output import as_text, use_colour
from relkit.reports import timeline_folder
from relkit.stacks.merge import merge_dumps
from relkit.stacks.model import RankDump


def say(line: str) -> None:
    """One line to the person at the terminal, apart from the job's own output."""
    click.echo(f"relkit: {line}", err=True)


@dataclass(frozen=True, slots=True)
class Publisher:
    """Shows and writes what an incident found.

    Args:
        folder: the timeline folder, writable.
    """

    folder: Path

    def publish(
        self, job: JobView, verdict: Verdict, report: Report, dumps: Sequence[RankDump]
    ) -> None:
        """The verdict on stderr at once; then the dumps, stacks, SVGs and reports."""
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
            say(f"the timeline folder could not be written: {error}")
            return
        if moved:
            say(f"the earlier incident's files are in {moved}")
        say(f"{len(dumps)} of {job.world_size} ranks captured; see:")
        for path in written:
            click.echo(f"  {path}", err=True)

    def keep(self, dumps: Sequence[RankDump]) -> None:
        """A following node's own dumps."""
        timeline.write_dumps(self.folder, dumps)


class JobFolder:
    """The shared-memory folder of a job's recorders: made on demand, removed at the end.

    Args:
        use_hook: False for --no-hook.
    """

    def __init__(self, use_hook: bool, tell: Say = say) -> None:
        self._use_hook, self._say = use_hook, tell
        self._made: Path | None = None

    def prepare(self, job_id: str, processes: int) -> tuple[Path | None, dict[str, str]]:
        """The folder and the environment for workers; (None, {}) without the hook.

        Args:
            job_id: as the launcher knows it; processes: ranks on this node.
        """
        if not self._use_hook or os.environ.get("RELKIT_HOOK_DISABLE") == "1":
            self._say("the hook is off: no hang detection, a failure is still explained")
            return None, {}
        try:
            folder = environment.prepare_job_dir(safe_job_id(job_id), processes)
            extra = environment.worker_environment(folder, os.getpid(), os.environ)
        except (HookUnavailable, RelkitError, OSError) as error:
            self._say(f"the hook cannot be used, so a hang would not be seen: {error}")
            return None, {}
        self._made = folder
        _drop_ended(folder)
        return folder, dict(extra)

    def remove(self) -> None:
        """Remove the folder, unless another launcher on this host still uses it."""
        if self._made is not None:
            _drop_ended(self._made)
            if not list(self._made.glob("*.rkhook")):
                environment.remove_job_dir(self._made)


def _drop_ended(folder: Path) -> None:
    """Remove recorder files of processes that are gone: those of an earlier incarnation."""
    for path in folder.glob("*.rkhook"):
        if path.stem.isdecimal() and not Path("/proc", path.stem).exists():
            path.unlink(missing_ok=True)


def choose_timeline(asked: Path | None) -> Path:
    """The timeline folder to use; says so where it is not the one that was asked for."""
    folder, note = timeline.choose_folder(asked or timeline.default_folder())
    if note:
        say(note)
    return folder


def without_own(environ: Mapping[str, str], *names: str) -> dict[str, str]:
    """A copy of an environment without some variables."""
    return {name: value for name, value in environ.items() if name not in names}
