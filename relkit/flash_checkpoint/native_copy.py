"""The native half (librelkit_slots.so), through ctypes: copies and checksums without the GIL."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np

from relkit.flash_checkpoint.errors import SlotsUnavailable

LIBRARY_VARIABLE = "RELKIT_SLOTS_LIBRARY"
ABI = 1
BLOCK_BYTES = 1 << 20
_SAVE, _LOAD = 0, 1

# (address in this process, offset in the payload, size), all in bytes; see transfer_piece.
Piece = tuple[int, int, int]


class _Transfer(ctypes.Structure):
    _fields_ = (
        ("payload", ctypes.c_void_p),
        ("size", ctypes.c_uint64),
        ("checksums", ctypes.c_void_p),
        ("pieces", ctypes.c_void_p),
        ("piece_count", ctypes.c_uint64),
        ("kind", ctypes.c_uint32),
    )


@dataclass(frozen=True, slots=True)
class Payload:
    """Where a slot's payload is mapped.

    Args:
        address: of its first byte; size_bytes: of all.
        checksums_address: of the array of one CRC32C (uint32) a block.
    """

    address: int
    size_bytes: int
    checksums_address: int


def block_count(size_bytes: int) -> int:
    """Blocks of a payload."""
    return -(-size_bytes // BLOCK_BYTES)


def library_path() -> Path:
    """Where the library is; RELKIT_SLOTS_LIBRARY overrides it."""
    override = os.environ.get(LIBRARY_VARIABLE)
    if override:
        return Path(override)
    return Path(str(resources.files("relkit") / "_lib" / "librelkit_slots.so"))


@cache
def load(path: Path | None = None) -> ctypes.CDLL:
    """The library, with its functions declared.

    Raises:
        SlotsUnavailable: it is not there, or is of another version.
    """
    path = path or library_path()
    try:
        library = ctypes.CDLL(str(path))
        if library.rks_abi() != ABI:
            raise SlotsUnavailable(f"{path} is of another version of relkit")
    except (OSError, AttributeError) as error:
        raise SlotsUnavailable(f"cannot load {path}: {error}") from error
    u32, u64, pointer = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
    signatures = {
        "rks_crc32c": (u32, (u32, pointer, u64)),
        "rks_crc32c_by_table": (u32, (u32, pointer, u64)),
        "rks_crc32c_in_hardware": (u32, ()),
        "rks_pool_new": (pointer, (u32,)),
        "rks_pool_free": (None, (pointer,)),
        "rks_start": (ctypes.c_int32, (pointer, ctypes.POINTER(_Transfer), u64, u64)),
        "rks_wait": (ctypes.c_int32, (pointer, ctypes.POINTER(u64))),
        "rks_withdraw": (None, (pointer, u64)),
        "rks_publish": (None, (pointer, pointer, u64)),
        "rks_state": (u64, (pointer,)),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def crc32c(data: bytes | np.ndarray[tuple[int], np.dtype[np.uint8]]) -> int:
    """CRC32C of bytes, or of an array's, without a copy."""
    array = np.frombuffer(data, dtype=np.uint8)
    return int(load().rks_crc32c(0, array.ctypes.data, array.size))


def withdraw(address: int, state: int) -> None:
    """Store a slot's state word before all that is written to the slot later."""
    load().rks_withdraw(address, state)


def publish(address: int, header: bytes) -> None:
    """Write a slot's header, its state word last.

    Args:
        header: a multiple of 8 bytes.
    """
    aligned = np.frombuffer(header, dtype=np.uint64).copy()
    load().rks_publish(address, aligned.ctypes.data, aligned.size)


def state(address: int) -> int:
    """A slot's state word, read before all that is read of the slot later."""
    return int(load().rks_state(address))


class CopyPool:
    """Native threads for one transfer at a time; not for two Python threads at a time.

    Args:
        threads: how many, at least 1.

    Raises:
        SlotsUnavailable: no library, or no thread can be made.
    """

    def __init__(self, threads: int) -> None:
        self._library = load()
        self._handle = self._library.rks_pool_new(max(1, threads))
        self._kept: tuple[object, ...] = ()
        if not self._handle:
            raise SlotsUnavailable("no thread can be started for the copies")

    def save(self, payload: Payload, pieces: Sequence[Piece], first: int, end: int) -> None:
        """Start to copy pieces into the blocks [first, end); what is between them becomes zeros."""
        self._start(_SAVE, payload, pieces, first, end)

    def load(self, payload: Payload, pieces: Sequence[Piece]) -> None:
        """Start to copy pieces out of a payload, and to hold all of it against its checksums."""
        self._start(_LOAD, payload, pieces, 0, block_count(payload.size_bytes))

    def wait(self) -> int | None:
        """Wait for what was started; the first block that is not as it was saved, else None."""
        bad = ctypes.c_uint64()
        code = self._library.rks_wait(self._handle, bad)
        self._kept = ()
        return bad.value if code == errno.EILSEQ else None

    def close(self) -> None:
        """End the threads."""
        if self._handle:
            self._library.rks_pool_free(self._handle)
            self._handle = None

    def _start(
        self, kind: int, payload: Payload, pieces: Sequence[Piece], first: int, end: int
    ) -> None:
        table = np.array(pieces, dtype=np.uint64).reshape(-1, 3)
        transfer = _Transfer(
            payload.address, payload.size_bytes, payload.checksums_address, table.ctypes.data,
            len(table), kind,
        )  # fmt: skip
        code = self._library.rks_start(self._handle, transfer, first, end)
        if code:
            raise OSError(code, os.strerror(code))
        self._kept = (table,)
