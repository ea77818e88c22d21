"""What a launcher tells its workers of try-to-persist, through their environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relkit.checkpoint import iteration_folder
from relkit.errors import RelkitError, UsageProblem
from relkit.files.private_file import open_private, read_private
from relkit.ttp.link import Endpoint, parse_endpoint

SWITCH = "ENABLE_TTP"
REGISTRATION = "rank-"
_ENDPOINTS = "RELKIT_TTP_CONTROLLERS"
KEY_FILE = "key"
_ATTEMPT = "RELKIT_TTP_ATTEMPT"
_HEARTBEAT = "RELKIT_TTP_HEARTBEAT"
_FOLDER = "RELKIT_TTP_FOLDER"
_MAX_KEY_BYTES = 1024


@dataclass(frozen=True, slots=True)
class ControllerAccess:
    """How to reach the controllers.

    Args:
        endpoints: the active controller's first, then the backups'.
        secret: of the job; attempt: of the job.
        heartbeat_s: between two signs of life, seconds.
    """

    endpoints: tuple[Endpoint, ...]
    secret: bytes
    attempt: int
    heartbeat_s: float = 1.0


@dataclass(frozen=True, slots=True)
class WorkerEnvironment:
    """What a worker finds.

    Args:
        wire: to the controllers.
        store: the launcher's rendezvous store, which outlives any rank.
        marks: folder of the launcher on this node, where a rank says that it takes part.
    """

    wire: ControllerAccess
    store: Endpoint
    marks: Path

    def mark(self, rank: int) -> None:
        """Tell the launcher of this node to leave the end of its workers to the controller."""
        (self.marks / f"{REGISTRATION}{rank}").touch(mode=0o600)

    def unmark(self, rank: int) -> None:
        """All have finished: the launcher is to treat this rank as any other again."""
        (self.marks / f"{REGISTRATION}{rank}").unlink(missing_ok=True)


def leave_key(secret: bytes, marks: Path) -> None:
    """Leave the secret for this user's workers: no environment is to have it.

    Raises:
        OSError: the folder cannot be written.
    """
    new = marks / f".{KEY_FILE}"
    new.unlink(missing_ok=True)
    with os.fdopen(open_private(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "w") as stream:
        stream.write(secret.hex())
    new.replace(marks / KEY_FILE)


def to_environment(
    endpoints: Sequence[Endpoint], attempt: int, heartbeat_s: float, marks: Path
) -> dict[str, str]:
    """The variables for workers; what is secret is left in a file (`leave_key`)."""
    return {
        _ENDPOINTS: ",".join(map(str, endpoints)),
        _ATTEMPT: str(attempt),
        _HEARTBEAT: f"{heartbeat_s:g}",
        _FOLDER: str(marks),
    }


def switched_on(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether ENABLE_TTP allows try-to-persist, as it does where it is not set."""
    return environ.get(SWITCH, "true").lower() in ("true", "1", "yes", "on")


def enabled(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process runs under a launcher with try-to-persist, and ENABLE_TTP allows it."""
    return switched_on(environ) and bool(environ.get(_ENDPOINTS))


def worker_environment(environ: Mapping[str, str] = os.environ) -> WorkerEnvironment:
    """Read the environment.

    Raises:
        UsageProblem: this process was not started by `relkit launch`, or half of it is missing.
    """
    try:
        marks = Path(environ[_FOLDER])
        endpoints = tuple(parse_endpoint(text) for text in environ[_ENDPOINTS].split(","))
        wire = ControllerAccess(
            endpoints,
            bytes.fromhex(read_private(marks / KEY_FILE, _MAX_KEY_BYTES).decode("ascii")),
            int(environ[_ATTEMPT]),
            float(environ[_HEARTBEAT]),
        )
        store = Endpoint(environ["MASTER_ADDR"], int(environ["MASTER_PORT"]))
        return WorkerEnvironment(wire, store, marks)
    except (KeyError, ValueError, OSError, RelkitError) as error:
        raise UsageProblem(
            f"try-to-persist has no controller: {error}",
            next_step="Start the job with `relkit launch`, or set ENABLE_TTP=False.",
        ) from error


def saved_since_the_start(notes: Path, folder: Path) -> bool:
    """Whether a checkpoint was written to `folder` since the job's first attempt began.

    Args:
        notes: a folder of the launcher, which lives as long as the job does on this node.
        folder: of the checkpoints.
    """
    tracker = folder / iteration_folder.TRACKER
    try:
        status = tracker.stat()
        now = f"{status.st_ino} {status.st_mtime_ns} {tracker.read_text(encoding='utf-8')}"
    except OSError:
        now = ""
    note = notes / "tracker-at-the-start"
    try:
        if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
            return bool(now) and note.read_text(encoding="utf-8") != now
    except FileNotFoundError:
        pass  # no attempt has come so far on this node: what is there may be another job's
    # All local ranks write the same; nobody changes the tracker before all have.
    pending = notes / f"{note.name}.{os.getpid()}"
    pending.write_text(now, encoding="utf-8")
    pending.replace(note)
    return False
