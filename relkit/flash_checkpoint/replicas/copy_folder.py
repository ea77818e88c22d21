"""The copies of slots that a launcher holds: of its own ranks, and of ranks on other hosts.

`replicas/rank-N.ROUND.copy` in the launcher's folder of slots. Each file is one slot, with the
round that it was copied in as the job of its header. A file has this name only once it is whole and
checked; a copy under way ends in `.new`. Copies of one round are of one step on all ranks, and of
one run of the training loop: copies of different rounds are never used together.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import re
import secrets
import shutil
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from relkit.errors import RelkitError
from relkit.files.private_file import is_private_folder, open_private, read_private
from relkit.flash_checkpoint.replicas.copy_stream import ReadInto, receive
from relkit.flash_checkpoint.slots import slot_format as form
from relkit.flash_checkpoint.slots.errors import BadSlot, SlotFault
from relkit.flash_checkpoint.slots.slot_file import no_room, require_room
from relkit.flash_checkpoint.slots.slot_format import Owner, SlotHeader
from relkit.output import write_atomic
from relkit.text.foreign_json import parse_json

FOLDER = "replicas"
ROUND_BYTES = 16
_NAME = re.compile(r"rank-(\d{1,9})\.([0-9a-f]{32})\.copy")
_WHOSE = "whose.json"
_MAX_WHOSE_BYTES = 1 << 24
_NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.ENOMEM)


class CopiesClosed(RelkitError):
    """The attempt that a copy was for is over."""

    next_step = "The copies that are whole are still used."


@dataclass(frozen=True, slots=True)
class Copy:
    """A whole copy.

    Args:
        rank: whose; round_id: 32 hexadecimal digits; header: of the slot; path: of the file.
    """

    rank: int
    round_id: str
    header: SlotHeader
    path: Path


class CopyFolder:
    """The copies of one launcher.

    Args:
        slots: folder of the launcher's slots; world_size: ranks of the job.
    """

    def __init__(self, slots: Path, world_size: int) -> None:
        self.path, self._world_size = slots / FOLDER, world_size
        self.path.mkdir(mode=0o700, exist_ok=True)
        # One that an earlier attempt still writes is of no use to anybody.
        self._suffix = f".{secrets.token_hex(4)}.new"
        for path in self.path.glob("rank-*.new"):
            path.unlink(missing_ok=True)
        self._is_open = True
        self._changing = threading.Lock()
        self._under_way: set[int] = set()

    def copies(self) -> tuple[list[Copy], list[str]]:
        """All whole copies of a job of this size, and why others are refused.

        Headers are checked, and the rest when it is read.
        """
        return copies_in(self.path, self._world_size)

    def of(self, rank: int, round_id: str) -> Copy:
        """One of them.

        Raises:
            BadSlot: it is not there, or not whole.
        """
        try:
            return _opened(self._final(rank, round_id), rank, round_id, self._world_size)
        except OSError as error:
            raise BadSlot(SlotFault.EMPTY, f"no copy of rank {rank}: {error.strerror}") from error

    def add(
        self,
        rank: int,
        round_id: str,
        header: SlotHeader,
        read_into: ReadInto,
        *,
        keep: str,
        spare_bytes: int,
    ) -> None:
        """Take in a copy; other copies of the rank go, but for the one that is to stay.

        Args:
            header: of the slot, its checksum checked; read_into: where the rest comes from.
            keep: the round whose copies stay; "": none.
            spare_bytes: so much of shared memory is left to the training.

        Raises:
            NoRoom: shared memory is too small.
            BadSlot: what came does not match its checksums, or is being taken in already.
            CopiesClosed: too late.
        """
        with self._one_writer(rank):
            new = self._reused(rank, {keep, round_id})
            end = form.places(header.layout_bytes, header.payload_bytes).end
            descriptor = open_private(new, os.O_RDWR | os.O_CREAT)
            try:
                self._reserve(descriptor, end, spare_bytes)
                slot = np.frombuffer(mmap.mmap(descriptor, end), dtype=np.uint8)
                receive(read_into, header, slot)
                packed = form.pack_slot_header(header, self._owner(rank, round_id))
                slot[: len(packed)] = np.frombuffer(packed, dtype=np.uint8)
                self._rename(new, rank, round_id)
            except BaseException:
                new.unlink(missing_ok=True)
                raise
            finally:
                os.close(descriptor)

    def keep_only(self, rounds: Collection[str]) -> None:
        """Remove the copies of all other rounds."""
        with self._changing:
            for path, _, round_id in _named(self.path):
                if round_id not in rounds:
                    path.unlink(missing_ok=True)

    def say_whose(self, nodes: Mapping[int, str], own: Collection[int]) -> None:
        """Leave a note for `relkit ckpt memory`.

        Args:
            nodes: rank -> name of the node that runs it; own: ranks of this node.
        """
        note = {"nodes": {str(rank): name for rank, name in nodes.items()}, "own": sorted(own)}
        with suppress(RelkitError, OSError):
            write_atomic(self.path / _WHOSE, json.dumps(note))

    def close(self) -> None:
        """Nothing is taken in any more."""
        with self._changing:
            self._is_open = False

    def remove(self) -> None:
        """Remove all."""
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def _owner(self, rank: int, round_id: str) -> Owner:
        return Owner(rank, self._world_size, bytes.fromhex(round_id))

    def _final(self, rank: int, round_id: str) -> Path:
        path = self.path / f"rank-{rank}.{round_id}.copy"
        if not _NAME.fullmatch(path.name):
            # It would never be found again, and its memory be lost.
            raise BadSlot(SlotFault.FOREIGN, f"{round_id[:40]!r} is not the number of a round")
        return path

    @contextmanager
    def _one_writer(self, rank: int) -> Iterator[None]:
        with self._changing:
            if rank in self._under_way:
                raise BadSlot(SlotFault.FOREIGN, f"a copy of rank {rank} is on its way already")
            self._under_way.add(rank)
        try:
            yield
        finally:
            self._under_way.discard(rank)

    def _reused(self, rank: int, kept: Collection[str]) -> Path:
        """The file to write: an outdated copy, whose memory is there already, or a new one."""
        new = self.path / f"rank-{rank}{self._suffix}"
        with self._changing:
            self._require_open()
            for path, of_rank, round_id in _named(self.path):
                if of_rank == rank and round_id not in kept:
                    path.replace(new)
        return new

    def _reserve(self, descriptor: int, end: int, spare_bytes: int) -> None:
        has_bytes = os.fstat(descriptor).st_blocks * 512
        if end > has_bytes:
            require_room(self.path, end - has_bytes + spare_bytes)
        os.ftruncate(descriptor, end)
        try:
            os.posix_fallocate(descriptor, 0, end)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise no_room(self.path, end, error) from error

    def _rename(self, new: Path, rank: int, round_id: str) -> None:
        with self._changing:
            self._require_open()
            new.replace(self._final(rank, round_id))

    def _require_open(self) -> None:
        if not self._is_open:
            raise CopiesClosed("the attempt that the copy was for is over")


def copies_in(folder: Path, world_size: int) -> tuple[list[Copy], list[str]]:
    """The whole copies in a folder, and why others are refused.

    Args:
        world_size: ranks of the job.
    """
    whole, refused = [], []
    for path, rank, round_id in _named(folder):
        try:
            whole.append(_opened(path, rank, round_id, world_size))
        except BadSlot as error:
            refused.append(f"the copy of rank {rank}: {error}")
        except OSError as error:
            refused.append(f"the copy of rank {rank}: {error.strerror}")
    return whole, refused


def whose(folder: Path) -> tuple[dict[int, str], frozenset[int]]:
    """What `CopyFolder.say_whose` has left; nothing where it cannot be read."""
    try:
        note = parse_json(read_private(folder / _WHOSE, _MAX_WHOSE_BYTES))
        nodes = {int(rank): str(name) for rank, name in note["nodes"].items()}
        return nodes, frozenset(int(rank) for rank in note["own"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}, frozenset()


def _named(folder: Path) -> list[tuple[Path, int, str]]:
    if not is_private_folder(folder):
        return []
    try:
        matches = [(path, _NAME.fullmatch(path.name)) for path in sorted(folder.iterdir())]
    except OSError:
        return []
    return [(path, int(match[1]), match[2]) for path, match in matches if match]


def _opened(path: Path, rank: int, round_id: str, world_size: int) -> Copy:
    descriptor = open_private(path)
    try:
        size_bytes = os.fstat(descriptor).st_size
        data = os.pread(descriptor, form.SLOT_HEADER_BYTES, 0)
    finally:
        os.close(descriptor)
    owner = Owner(rank, world_size, bytes.fromhex(round_id))
    return Copy(rank, round_id, form.read_slot_header(data, size_bytes, owner), path)
