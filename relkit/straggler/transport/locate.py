"""Where the history of a job is: in its folder while it runs, in a timeline folder afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from relkit.errors import BadDump, NoSuchProcess, RelkitError
from relkit.files.usual_timeline import usual_folders
from relkit.hook import environment
from relkit.hook.owner import is_recorded
from relkit.straggler.transport import live_file
from relkit.straggler.transport.history import History, load
from relkit.text.job_id import safe_job_id

LIVE_FILE = live_file.FILE
KEPT_FILE = Path("straggler", "history.npz")
_TIMELINE_VARIABLES = ("RELKIT_LAUNCH_TIMELINE_PATH", "XPU_TIMER_TIMELINE_PATH")


def job_folders(job_id: str) -> tuple[Path, ...]:
    """Where a running job's files are on this host."""
    return environment.job_folders(safe_job_id(job_id))


def jobs_here() -> tuple[str, ...]:
    """Ids of the jobs on this host that run and have a history, the one written last first."""
    jobs = []
    for folder in environment.all_job_folders():
        path = folder / LIVE_FILE
        if not path.exists() or not is_recorded(folder):
            continue
        try:
            jobs.append((-path.stat().st_mtime_ns, folder.name))
        except OSError:
            continue
    return tuple(name for _, name in sorted(jobs))


def refresh(folder: Path) -> None:
    """Have a running job's launcher write what it knows by now; nothing where there is none.

    Args:
        folder: the job's shared-memory folder.
    """
    if (folder / LIVE_FILE).exists() and is_recorded(folder):
        live_file.wait_for_news(folder)


def locate_history(named: str, environ: Mapping[str, str] = os.environ) -> History:
    """The history of a job, from a file, a timeline folder, or the job's id.

    Of several of one job the newest counts.

    Args:
        named: what the user typed; environ: may name timeline folders.

    Raises:
        BadDump: the file or the folder's file is no history.
        NoSuchProcess: nothing is known of such a job here.
    """
    path = Path(named)
    if path.is_file():
        return load(path)
    if path.is_dir():
        for candidate in _candidates(path):
            if candidate.exists():
                return load(candidate)
        raise BadDump(
            f"{path}: there is no {KEPT_FILE} in it",
            next_step="Name the --timeline-path of a job that ran with --straggler warn.",
        )
    histories = list(_of_job(named, environ))
    if not histories:
        raise NoSuchProcess(
            f"no straggler history of a job {named!r} is on this host",
            next_step="Name its timeline folder, or run this on the job's first node; only jobs "
            "with `relkit launch --straggler warn` (or exclude) have one.",
        )
    return max(histories, key=lambda pair: pair[0])[1]


def has_history(folder: Path) -> bool:
    """It is a job's folder, with what relkit has seen of it."""
    return any(candidate.exists() for candidate in _candidates(folder))


def _candidates(folder: Path) -> tuple[Path, ...]:
    return folder / KEPT_FILE, folder / "history.npz", folder / LIVE_FILE


def _of_job(job_id: str, environ: Mapping[str, str]) -> Iterator[tuple[int, History]]:
    """(time of writing, history) of each one that is there."""
    wanted = safe_job_id(job_id)
    for folder in job_folders(job_id):
        refresh(folder)
    places = [folder / LIVE_FILE for folder in job_folders(job_id)]
    timelines = [Path(environ[name]) for name in _TIMELINE_VARIABLES if environ.get(name)]
    timelines += usual_folders()
    places += [folder / KEPT_FILE for folder in dict.fromkeys(timelines)]
    for path in places:
        try:
            written_ns = path.stat().st_mtime_ns
            history = load(path)
        except (OSError, RelkitError):
            continue
        if safe_job_id(history.job_id) == wanted:
            yield written_ns, history
