"""Where a job's last checkpoints are, and how old they are: memory, replicas, disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relkit.checkpoint import iteration_folder
from relkit.checkpoint.iteration_folder import TRACKER
from relkit.errors import RelkitError

if TYPE_CHECKING:
    from relkit.flash_checkpoint.on_disk.disk import OnDisk

MEMORY, REPLICA, DISK = "memory", "replica", "disk"
# A file system that does not answer is not waited for.
_DISK_S = 2.0


@dataclass(frozen=True, slots=True)
class Saved:
    """The newest checkpoint in one place.

    Args:
        where: "memory", "replica" or "disk".
        step: that it is of; age_s: since when it has been there.
    """

    where: str
    step: int
    age_s: float


def saved_of(job_id: str, now_s: float) -> tuple[Saved, ...]:
    """The newest in each place, as far as this host shows it.

    Args:
        now_s: Unix time.
    """
    # Only here: most commands need no numpy.
    from relkit.flash_checkpoint.memory_report import memory_report

    try:
        facts = memory_report(job_id, argv=(), started=now_s).facts
    except RelkitError:
        return ()
    newest = [_in_memory(facts), _in_replicas(facts["replicas"])]
    newest.append(within(_DISK_S, lambda: _on_disk(job_id, now_s), job_id))
    return tuple(each for each in newest if each is not None)


def _in_memory(facts: Any) -> Saved | None:  # noqa: ANN401  JSON
    step = facts["step"]
    ages = [row["age_s"] for row in facts["slots"] if row["step"] == step and row["age_s"]]
    return Saved(MEMORY, step, min(ages)) if step >= 0 and ages else None


def _in_replicas(rows: Iterable[dict[str, Any]]) -> Saved | None:
    """Of ranks of other hosts: what is held here of this host's own ranks is no second copy."""
    others = [row for row in rows if not row["is_own"]]
    newest = max(others, key=lambda row: row["step"], default=None)
    return None if newest is None else Saved(REPLICA, newest["step"], newest["age_s"])


def _on_disk(job_id: str, now_s: float) -> Saved | None:
    from relkit.flash_checkpoint import destination
    from relkit.flash_checkpoint.slots import slot_folder

    roots: set[Path] = set()
    for folder in slot_folder.folders_of(job_id):
        for path in folder.glob("rank-*.slots"):
            rank = path.stem.removeprefix("rank-")
            place = destination.read(folder, int(rank)) if rank.isdecimal() else None
            if place is not None:
                roots.add(place.root)
    on_disk = [saved for root in roots for saved in _trackers(root, now_s)]
    return max(on_disk, key=lambda each: (each.step, -each.age_s), default=None)


def _trackers(root: Path, now_s: float) -> Iterator[Saved]:
    """What the trackers below a folder name: of the loop's own saves, and of launchers'."""
    from relkit.flash_checkpoint.on_disk import disk

    launchers = root / disk.LAUNCHERS_FOLDER
    kinds: tuple[tuple[Path, Callable[[], int | None]], ...] = (
        (root / disk.TRACKER, lambda: _step_of(disk.latest(root))),
        (root / TRACKER, lambda: iteration_folder.latest(root)),
        (launchers / TRACKER, lambda: iteration_folder.latest(launchers)),
    )
    for tracker, latest in kinds:
        with suppress(RelkitError, OSError):
            age_s = round(max(0.0, now_s - tracker.stat().st_mtime), 3)
            step = latest()
            if step is not None:
                yield Saved(DISK, step, age_s)


def _step_of(named: OnDisk | None) -> int | None:
    return None if named is None else named.step


_STUCK: dict[str, threading.Thread] = {}


def within(seconds: float, call: Callable[[], Saved | None], name: str) -> Saved | None:
    """What a call gives; None where it takes longer.

    Args:
        name: of what is asked: no further call is made while one of this name has not returned, as
            whoever looks again and again would have ever more threads.
    """
    earlier = _STUCK.get(name)
    if earlier is not None and earlier.is_alive():
        return None
    answers: list[Saved | None] = []
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        _STUCK[name] = thread
    return answers[0] if answers else None


def saved_words(saved: Iterable[Saved]) -> str:
    """ "memory 120 (5 s), disk 100 (3 m)"; "-" for nothing."""
    return ", ".join(f"{s.where} {s.step} ({age_words(s.age_s)})" for s in saved) or "-"


def age_words(seconds: float | None) -> str:
    """A time in its largest fitting unit: "5 s", "3 m", "7 h", "2 d"."""
    if seconds is None:
        return "-"
    for unit, size_s in (("d", 86400.0), ("h", 3600.0), ("m", 60.0)):
        if seconds >= 2 * size_s:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
