"""Where a launcher under try-to-persist can be found and asked, on its own node.

<folder of the job>/ttp-<pid of the launcher>/
    status.json     where the job stands; no secret is in it
    rank-<n>        one for each rank here that is led
    key             the secret of the attempt, for the ranks here; of this user alone
    request-<name>  left by `relkit ttp save`; the answer is written into it
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from relkit.errors import RelkitError
from relkit.files.private_file import is_private_folder, read_private
from relkit.hook import environment
from relkit.output import write_atomic
from relkit.process import procfs
from relkit.process.identity import ProcessFinder, ProcessIdentity, own_identity, own_name
from relkit.text.foreign_json import parse_json
from relkit.text.job_id import safe_job_id
from relkit.ttp.environment import REGISTRATION, leave_key

PREFIX = "ttp-"
STATUS = "status.json"
REQUEST = "request-"

# 16,384 ranks at some hundred bytes each.
_MAX_STATUS_BYTES = 16 << 20


class PersistFolder:
    """The launcher's own folder; made in the job's, or in the temporary folder if that fails.

    Args:
        job_id: as the launcher knows it.
    """

    def __init__(self, job_id: str) -> None:
        self._taken: list[Path] = []
        self._marked = False
        try:
            parent = environment.prepare_job_dir(safe_job_id(job_id), 1)
            self.path = parent / f"{PREFIX}{own_name()}"
            self.path.mkdir(mode=0o700)
        except (RelkitError, OSError):
            # It works without being found.
            self.path = Path(tempfile.mkdtemp(prefix=f"relkit-{PREFIX}"))

    def leave_key(self, secret: bytes) -> None:
        """Leave the secret for the workers; elsewhere, where the job's folder is full.

        Raises:
            OSError: no folder can be written.
        """
        try:
            leave_key(secret, self.path)
        except OSError:
            shutil.rmtree(self.path, ignore_errors=True)
            self.path = Path(tempfile.mkdtemp(prefix=f"relkit-{PREFIX}"))
            leave_key(secret, self.path)

    @property
    def marked(self) -> bool:
        """A worker of this node is led."""
        # A folder that cannot be read now does not say that nobody is.
        with contextlib.suppress(OSError):
            self._marked = any(map(_is_mark, self.path.iterdir()))
        return self._marked

    def clear(self) -> None:
        """An attempt is over."""
        self._marked = False
        with contextlib.suppress(OSError):
            for mark in filter(_is_mark, list(self.path.iterdir())):
                mark.unlink(missing_ok=True)

    def take_requests(self) -> bool:
        """Whether somebody has asked for a save since the last call."""
        try:
            # Not globbed: this is asked ten times a second.
            here = [path for path in self.path.iterdir() if path.name.startswith(REQUEST)]
        except OSError:
            return False
        new = [path for path in here if path not in self._taken]
        self._taken += new
        return bool(new)

    def answer(self, text: str) -> None:
        """Tell all who have asked, and forget them."""
        for path in self._taken:
            with contextlib.suppress(OSError):
                # Not replaced: who asked reads the file that it holds open.
                path.write_text(text, encoding="utf-8")
                path.unlink()
        self._taken.clear()

    def write_status(self, status: Mapping[str, object]) -> bool:
        """Replace the status; False where that cannot be: a full disk is no reason to end."""
        try:
            text = json.dumps({**asdict(own_identity()), **status})
            write_atomic(self.path / STATUS, text)
        except (RelkitError, OSError):
            return False
        return True

    def remove(self) -> None:
        """Nothing is left."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            # Only where it is empty: another launcher, or the recorders, may be in it.
            self.path.parent.rmdir()


def _is_mark(path: Path) -> bool:
    return path.name.startswith(REGISTRATION)


def launchers_of(job_id: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Folders and status of the launchers of a job on this host that live.

    Raises:
        UsageProblem: the job id cannot be a folder name.
    """
    finder = ProcessFinder()
    for parent in environment.job_folders(job_id):
        for folder in filter(is_private_folder, sorted(parent.glob(f"{PREFIX}*"))):
            try:
                status = parse_json(read_private(folder / STATUS, _MAX_STATUS_BYTES))
                names = ("pid", "start_ticks", "namespace")
                launcher = ProcessIdentity(*(int(status[name]) for name in names))
            except (OSError, ValueError, KeyError, TypeError):
                continue
            number = finder.number_of(launcher)
            if number is not None and procfs.is_same_process(number, launcher.start_ticks):
                yield folder, {**status, "pid": number}
