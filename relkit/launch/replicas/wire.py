"""Slots on a connection between two launchers.

    push    offer: rank, round, round to keep, header of the slot ->
                                        <- GO, NO_ROOM or REFUSED with a sentence
            layout, checksums, payload ->
                                        <- WHOLE or REFUSED
    fetch   rank, round ->
                                        <- GO and the header of the slot, or REFUSED
                                        <- layout, checksums, payload

Both ends have proven that they know the job's key (`relkit.net`). What comes is checked all the
same: a wrong length, checksum or rank ends the connection, and so does a peer that is slow.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import IntEnum

from relkit.errors import RelkitError
from relkit.flash_checkpoint.replicas.copy_folder import ROUND_BYTES, Copy
from relkit.flash_checkpoint.replicas.copy_stream import parts
from relkit.flash_checkpoint.slots import slot_format as form
from relkit.flash_checkpoint.slots.errors import BadSlot, SlotFault
from relkit.flash_checkpoint.slots.slot_format import Owner, SlotHeader

# Without a byte for so long, a peer is given up.
IDLE_S = 15.0
# A slot may take so long at most, at so many bytes a second.
_FIXED_S, _MIN_BYTES_PER_S = 60.0, 1e5
_MAGIC = b"RKCOPY1\n"
_OFFER = struct.Struct("<8sI16s16s")
_ANSWER = struct.Struct("<BH")
_MAX_WORDS = 2000
_MAX_SLOT_BYTES = 1 << 47
_NONE = bytes(ROUND_BYTES)


class Broken(RelkitError):
    """A connection to another launcher has ended in the middle of something."""

    next_step = "The job goes on; the next round tries again."


class Answer(IntEnum):
    """What a receiver says."""

    GO = 0
    WHOLE = 1
    NO_ROOM = 2
    REFUSED = 3


@dataclass(frozen=True, slots=True)
class Asked:
    """The first part of a message.

    Args:
        rank: whose slot; round_id: that it was copied in; keep: the round to keep; "": none.
    """

    rank: int
    round_id: str
    keep: str = ""


class RateLimit:
    """Limits how fast bytes are sent, over all connections of a launcher.

    Args:
        bytes_per_s: 0: no limit.
        wait: sleeps for a number of seconds, or until there is no need to go on.
    """

    def __init__(self, bytes_per_s: float, wait: Callable[[float], object] = time.sleep) -> None:
        self._bytes_per_s, self._wait = bytes_per_s, wait
        self._free_s = 0.0

    def sent(self, size_bytes: int) -> None:
        """So much was sent: wait until more may be."""
        if not self._bytes_per_s:
            return
        now_s = time.monotonic()
        self._free_s = max(self._free_s, now_s) + size_bytes / self._bytes_per_s
        if self._free_s > now_s:
            self._wait(self._free_s - now_s)


@dataclass(slots=True)
class Link:
    """One authenticated connection.

    Args:
        connection: blocking; closed with the link.
        stop: set when there is no need to go on.
        end_s: monotonic time after which nothing is sent or waited for any more, s.
    """

    connection: socket.socket
    stop: threading.Event = field(default_factory=threading.Event)
    end_s: float = math.inf
    _until_s: float = 0.0

    def begin(self, size_bytes: int = 0) -> None:
        """From now on, so many bytes may take their time."""
        self._until_s = time.monotonic() + _FIXED_S + size_bytes / _MIN_BYTES_PER_S

    def close(self) -> None:
        """End it; also while another thread waits in it."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()

    def send(self, data: bytes | memoryview) -> None:
        """Send all of it.

        Raises:
            Broken: the other end is gone, or takes too long.
        """
        try:
            self.connection.settimeout(self._wait_s())
            self.connection.sendall(data)
        except OSError as error:
            raise Broken(f"the other end takes nothing more: {_why(error)}") from error

    def read_into(self, view: memoryview, _offset: int = 0) -> None:
        """Fill a buffer.

        Raises:
            Broken: the other end is gone, or takes too long.
        """
        while view:
            try:
                self.connection.settimeout(self._wait_s())
                size = self.connection.recv_into(view)
            except OSError as error:
                raise Broken(f"the other end sends nothing more: {_why(error)}") from error
            if not size:
                raise Broken("the other end has closed the connection")
            view = view[size:]

    def read(self, size_bytes: int) -> bytes:
        """So many bytes."""
        data = bytearray(size_bytes)
        self.read_into(memoryview(data))
        return bytes(data)

    def wait_readable(self) -> bool:
        """Wait until the other end says something; False where there is no need to go on."""
        while not self.stop.is_set():
            try:
                self.connection.settimeout(1.0)
                return bool(self.connection.recv(1, socket.MSG_PEEK))
            except TimeoutError:
                continue
            except OSError:
                return False
        return False

    def ask(self, asked: Asked) -> None:
        """Send the first part of a message."""
        keep = bytes.fromhex(asked.keep) or _NONE
        self.send(_OFFER.pack(_MAGIC, asked.rank, bytes.fromhex(asked.round_id), keep))

    def read_asked(self, ranks: Collection[int]) -> Asked:
        """The first part of a message.

        Args:
            ranks: that the other end may speak of.

        Raises:
            BadSlot: it is no such message, or speaks of another rank.
        """
        magic, rank, round_id, keep = _OFFER.unpack(self.read(_OFFER.size))
        if magic != _MAGIC:
            raise BadSlot(SlotFault.OTHER_VERSION, "what came is not the beginning of a slot")
        if rank not in ranks:
            raise BadSlot(SlotFault.FOREIGN, f"rank {rank} is not that node's")
        return Asked(rank, round_id.hex(), "" if keep == _NONE else keep.hex())

    def send_header(self, header: SlotHeader, owner: Owner) -> None:
        """Send the header of a slot."""
        self.send(form.pack_slot_header(header, owner))

    def read_header(self, owner: Owner) -> SlotHeader:
        """The header of a slot that must belong to this owner.

        Raises:
            BadSlot: it does not, or is damaged.
        """
        return form.read_slot_header(self.read(form.SLOT_HEADER_BYTES), _MAX_SLOT_BYTES, owner)

    def answer(self, answer: Answer, words: str = "") -> None:
        """Answer."""
        text = words.encode("utf-8", "replace")[:_MAX_WORDS]
        self.send(_ANSWER.pack(answer, len(text)) + text)

    def read_answer(self) -> tuple[Answer, str]:
        """An answer, and its words.

        Raises:
            Broken: it is none.
        """
        kind, size_bytes = _ANSWER.unpack(self.read(_ANSWER.size))
        if kind not in iter(Answer) or size_bytes > _MAX_WORDS:
            raise Broken("the other end does not speak this protocol")
        return Answer(kind), self.read(size_bytes).decode("utf-8", "replace")

    def send_copy(self, copy: Copy, rate_limit: RateLimit) -> None:
        """Send what a copy holds beside its header.

        Raises:
            Broken: as `send`, or there is no need to go on.
            OSError: the copy is gone.
        """
        descriptor = os.open(copy.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for offset, size in parts(copy.header):
                if self.stop.is_set():
                    raise Broken("the attempt is over")
                data = os.pread(descriptor, size, offset)
                self.send(data)
                rate_limit.sent(len(data))
        finally:
            os.close(descriptor)

    def _wait_s(self) -> float:
        left_s = min(self._until_s, self.end_s) - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("it takes too long")
        return min(IDLE_S, left_s)


def slot_bytes(header: SlotHeader) -> int:
    """Size of a slot with all of its parts."""
    return form.places(header.layout_bytes, header.payload_bytes).end


def _why(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
