"""Who makes a job slow, as the launcher of its node 0 has published it last."""

from __future__ import annotations

from relkit.errors import RelkitError
from relkit.hook.environment import job_folders
from relkit.straggler.transport import live_file
from relkit.text.job_id import safe_job_id

_MOST = 8


def slow_of(job_id: str) -> tuple[str, ...]:
    """In words: "rank 3 (node7)". Nothing where nobody is slow, or this is not the job's node 0."""
    try:
        folders = job_folders(safe_job_id(job_id))
        paths = [folder / live_file.FILE for folder in folders]
        path = next((each for each in paths if each.exists()), None)
        if path is None:
            return ()
        # Only here: most commands need no numpy.
        from relkit.straggler.present.report import who
        from relkit.straggler.transport.history import load

        history = load(path)
    except (RelkitError, OSError):
        return ()
    accused = [raised for raised in history.verdicts if raised.verdict.accuses]
    return tuple(who(history, raised) for raised in accused[:_MOST])
