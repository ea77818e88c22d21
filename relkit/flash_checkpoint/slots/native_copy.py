"""Calls librelkit_slots.so through ctypes: copies and checksums without the GIL."""

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

from relkit.flash_checkpoint.slots.errors import SlotsUnavailable

LIBRARY_VARIABLE = "RELKIT_SLOTS_LIBRARY"
ABI = 3
BLOCK_BYTES = 1 << 20
_SAVE, _LOAD = 0, 1

# (address in this process, offset in the payload, size in bytes): struct transfer_piece.
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
        address: of its first byte; size_bytes: of the whole payload.
        checksums_address: of an array with one CRC32C (uint32) per block.
    """

    address: int
    size_bytes: int
    checksums_address: int


def block_count(size_bytes: int) -> int:
    """Number of blocks in a payload."""
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
        SlotsUnavailable: it is missing, or its version does not fit.
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
        "rks_copy": (
            ctypes.c_int32,
            (pointer, ctypes.POINTER(_Transfer), u64, u64, ctypes.POINTER(u64)),
        ),
        "rks_withdraw": (None, (pointer, u64)),
        "rks_publish": (None, (pointer, pointer, u64)),
        "rks_state": (u64, (pointer,)),
        "rks_populate": (ctypes.c_int32, (pointer, u64)),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def crc32c(data: bytes | np.ndarray[tuple[int], np.dtype[np.uint8]]) -> int:
    """CRC32C of bytes or of an array, without copying them."""
    array = np.frombuffer(data, dtype=np.uint8)
    return int(load().rks_crc32c(0, array.ctypes.data, array.size))


def withdraw(address: int, state: int) -> None:
    """Store a slot's state word; everything written to the slot afterwards is seen later."""
    load().rks_withdraw(address, state)


def publish(address: int, header: bytes) -> None:
    """Write a slot's header, the state word last.

    Args:
        header: a multiple of 8 bytes.
    """
    aligned = np.frombuffer(header, dtype=np.uint64).copy()
    load().rks_publish(address, aligned.ctypes.data, aligned.size)


def state(address: int) -> int:
    """A slot's state word; everything read from the slot afterwards is read later."""
    return int(load().rks_state(address))


def populate(address: int, size_bytes: int) -> bool:
    """Give pages of a mapping memory before anything is written to them; without the GIL.

    Args:
        address: of a page.

    Returns:
        whether the kernel did it; an older one cannot, and the first write to each page does it.
    """
    return bool(load().rks_populate(address, size_bytes) == 0)


class CopyPool:
    """Native threads that copy; one thread at a time may use them.

    A copy starts and ends within one native call, so that no signal handler of Python's can raise
    while the threads still use the caller's memory.

    Args:
        threads: how many, 1 to 64.

    Raises:
        SlotsUnavailable: there is no library, or no thread can be started.
    """

    def __init__(self, threads: int) -> None:
        self._library = load()
        self._handle = self._library.rks_pool_new(max(1, threads))
        if not self._handle:
            raise SlotsUnavailable("no thread can be started for the copies")

    def save(self, payload: Payload, pieces: Sequence[Piece], first: int, end: int) -> None:
        """Copy pieces into the blocks [first, end); the gaps between them are filled with zeros."""
        self._copy(_SAVE, payload, pieces, first, end)

    def load(self, payload: Payload, pieces: Sequence[Piece]) -> int | None:
        """Copy pieces out of a payload, and check all of it against its checksums.

        Returns:
            the first block that does not match its checksum; None where all do.
        """
        return self._copy(_LOAD, payload, pieces, 0, block_count(payload.size_bytes))

    def close(self) -> None:
        """Stop the threads."""
        if self._handle:
            self._library.rks_pool_free(self._handle)
            self._handle = None

    def _copy(
        self, kind: int, payload: Payload, pieces: Sequence[Piece], first: int, end: int
    ) -> int | None:
        table = np.array(pieces, dtype=np.uint64).reshape(-1, 3)
        transfer = _Transfer(
            payload.address, payload.size_bytes, payload.checksums_address, table.ctypes.data,
            len(table), kind,
        )  # fmt: skip
        bad_block = ctypes.c_uint64()
        code = self._library.rks_copy(self._handle, transfer, first, end, bad_block)
        if code == errno.EILSEQ:
            return bad_block.value
        if code:
            raise OSError(code, os.strerror(code))
        return None
