"""What a job has in memory on this host, as a Report: read only, and without torch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from relkit.errors import BadInputFile
from relkit.files.private_file import open_private
from relkit.findings import Evidence, Finding, Report, Status
from relkit.flash_checkpoint.replicas import copy_folder
from relkit.flash_checkpoint.slots import slot_folder
from relkit.flash_checkpoint.slots import slot_format as form
from relkit.flash_checkpoint.slots.errors import BadSlot, SlotFault
from relkit.ranks import RankSet

HEADER = ("rank", "slot", "state", "step", "age", "save", "size", "folder")
_WHOLE = "whole"
# A slot that is being saved looks like one whose save was cut off.
_HARMLESS = (_WHOLE, str(SlotFault.EMPTY), str(SlotFault.TORN))


@dataclass(frozen=True, slots=True)
class SlotSeen:
    """A slot of a rank.

    Args:
        rank: that it belongs to; world_size: ranks of the job; 0 where its file cannot be read.
        slot: number in the file; -1 for the file as a whole.
        state: "whole", or why it cannot be used (SlotFault).
        step, sequence, saved_unix_ns, size_bytes: of a whole slot; -1, 0, 0, 0 for others.
        problem: in words; "" for a whole slot.
        folder: in shared memory.
    """

    rank: int
    world_size: int
    slot: int
    state: str
    step: int = -1
    sequence: int = 0
    saved_unix_ns: int = 0
    size_bytes: int = 0
    problem: str = ""
    folder: str = ""


def memory_report(job_id: str, *, argv: tuple[str, ...], started: float) -> Report:
    """The slots of a job on this host.

    Args:
        job_id: of the launcher; argv, started: of the command.

    Returns:
        a report with "slots" and "step" in its facts: the newest step that all ranks on this host
        have whole, -1 where there is none; and with "replicas".

    Raises:
        BadInputFile: the job has no slots here.
    """
    folders = slot_folder.folders_of(job_id)
    slots = [slot for folder in folders for slot in _of_folder(folder)]
    if not slots:
        there = ", ".join(slot_folder.jobs_here()) or "no job"
        raise BadInputFile(
            f"job {job_id} of this user has nothing in memory on this host",
            next_step=f"Those who have a folder there: {there}. Slots go with their launcher.",
        )
    step = newest_common(slots)
    rows = [{**asdict(slot), "age_s": _age_s(slot, started)} for slot in slots]
    world_size = max(slot.world_size for slot in slots)
    replicas = [row for folder in folders for row in _replicas(folder, world_size, started)]
    facts = {"job_id": job_id, "step": step, "slots": rows, "replicas": replicas}
    return Report("ckpt", tuple(_findings(slots, step, started)), facts, started=started, argv=argv)


def newest_common(slots: Sequence[SlotSeen]) -> int:
    """The newest step that every rank among these has whole; -1 where there is none."""
    by_rank: dict[int, set[int]] = {slot.rank: set() for slot in slots}
    for slot in slots:
        if slot.state == _WHOLE:
            by_rank[slot.rank].add(slot.step)
    return max(set.intersection(*by_rank.values()), default=-1)


def _of_folder(folder: Path) -> Iterator[SlotSeen]:
    paths = {}
    for path in folder.glob("rank-*.slots"):
        if match := re.fullmatch(r"rank-(\d+)\.slots", path.name):
            paths[int(match[1])] = path
    for rank, path in sorted(paths.items()):
        try:
            yield from _of_file(path, rank)
        except FileNotFoundError:
            continue  # its launcher has just removed it
        except BadSlot as error:
            yield SlotSeen(
                rank, 0, -1, str(error.fault), problem=f"{path}: {error}", folder=str(folder)
            )
        except OSError as error:
            reason = error.strerror or str(error)
            yield SlotSeen(
                rank, 0, -1, "unreadable", problem=f"{path}: {reason}", folder=str(folder)
            )


def _of_file(path: Path, rank: int) -> list[SlotSeen]:
    folder = str(path.parent)
    descriptor = open_private(path)
    try:
        size_bytes = os.fstat(descriptor).st_size
        owner, slot_bytes = form.read_file_header(
            os.pread(descriptor, form.PAGE_BYTES, 0), size_bytes
        )
        form.require_owner(owner, slot_folder.owner(path.parent, rank, owner.world_size))
        count = min((size_bytes - form.PAGE_BYTES) // slot_bytes, form.MAX_SLOTS)
        seen = []
        for index in range(count):
            base = form.PAGE_BYTES + index * slot_bytes
            data = os.pread(descriptor, form.SLOT_HEADER_BYTES, base)
            try:
                header = form.read_slot_header(data, slot_bytes, owner)
            except BadSlot as error:
                slot = SlotSeen(
                    rank, owner.world_size, index, str(error.fault), problem=str(error),
                    folder=folder,
                )  # fmt: skip
            else:
                slot = SlotSeen(
                    rank, owner.world_size, index, _WHOLE, header.step, header.sequence,
                    header.saved_unix_ns, header.payload_bytes, folder=folder,
                )  # fmt: skip
            seen.append(slot)
        return seen
    finally:
        os.close(descriptor)


def _findings(slots: Sequence[SlotSeen], step: int, now_s: float) -> Iterator[Finding]:
    for slot in slots:
        if slot.state not in _HARMLESS:
            yield Finding(
                "RK-FLASH-005",
                Status.FAIL,
                f"rank {slot.rank}: {'its file' if slot.slot < 0 else f'slot {slot.slot}'} is"
                " refused",
                reasons=(slot.problem,),
                advice="The other slots, and the checkpoints on disk, are still used.",
            )
    ranks = sorted({slot.rank for slot in slots})
    where = f"rank {RankSet.of(ranks).fold()} on this host"
    world_size = max(slot.world_size for slot in slots)
    evidence = [
        Evidence("ranks on this host", len(ranks)),
        Evidence("ranks of the job", world_size),
    ]
    if step < 0:
        without = [r for r in ranks if not any(s.rank == r and s.state == _WHOLE for s in slots)]
        reason = (
            f"rank {RankSet.of(without).fold()} has no whole slot"
            if without
            else "the ranks have no step in common"
        )
        yield Finding(
            "RK-FLASH-004",
            Status.WARN,
            f"no step is whole in memory on all of {where}",
            evidence=tuple(evidence),
            reasons=(reason,),
            advice="Look again while the job runs: a slot that is being saved is not whole.",
        )
        return
    saved = max(s.saved_unix_ns for s in slots if s.state == _WHOLE and s.step == step)
    evidence.append(Evidence("age", round(now_s - saved / 1e9, 3), "s"))
    yield Finding(
        "RK-FLASH-003",
        Status.OK,
        f"step {step} is whole in memory on all of {where}",
        evidence=tuple(evidence),
    )


def _replicas(folder: Path, world_size: int, now_s: float) -> Iterator[dict[str, Any]]:
    """The copies that the launcher of a folder holds, of its own ranks and of others."""
    there = folder / copy_folder.FOLDER
    nodes, own = copy_folder.whose(there)
    copies, _ = copy_folder.copies_in(there, world_size)
    for copy in sorted(copies, key=lambda copy: (copy.rank, -copy.header.step)):
        header = copy.header
        yield {
            "rank": copy.rank, "node": nodes.get(copy.rank, ""), "is_own": copy.rank in own,
            "step": header.step, "age_s": round(now_s - header.saved_unix_ns / 1e9, 3),
            "size_bytes": header.payload_bytes, "folder": str(there),
        }  # fmt: skip


def _age_s(slot: SlotSeen, now_s: float) -> float | None:
    return round(now_s - slot.saved_unix_ns / 1e9, 3) if slot.state == _WHOLE else None


def rows_of(report: Report) -> list[list[str]]:
    """The cells of `HEADER` for a table."""
    return [
        *(_cells(row) for row in report.facts["slots"]),
        *(_cells_of_copy(row) for row in report.facts["replicas"]),
    ]


def _cells(row: dict[str, Any]) -> list[str]:
    is_whole = row["state"] == _WHOLE
    return [
        str(row["rank"]),
        "-" if row["slot"] < 0 else str(row["slot"]),
        row["state"],
        str(row["step"]) if is_whole else "-",
        f"{row['age_s']:.1f} s" if is_whole else "-",
        str(row["sequence"]) if is_whole else "-",
        f"{row['size_bytes'] / 1e6:,.1f} MB" if is_whole else "-",
        row["folder"],
    ]


def _cells_of_copy(row: dict[str, Any]) -> list[str]:
    whose = "own copy" if row["is_own"] else f"replica of {row['node']}"
    size = f"{row['size_bytes'] / 1e6:,.1f} MB"
    age = f"{row['age_s']:.1f} s"
    return [str(row["rank"]), "-", whose, str(row["step"]), age, "-", size, row["folder"]]
