"""Function symbols of an ELF object, read with plain file reads and looked up by address.

The tables are read with pread instead of being mapped: a library that is truncated (or whose
file server goes away) while it is mapped would kill this process by SIGBUS.
Layouts: elf.h / System V gABI, 64-bit little-endian only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

Reader = Callable[[int, int], bytes]
"""(offset, size) -> at most size bytes of the file from there."""

_HEADER = np.dtype(
    [("ident", "S16"), ("type", "<u2"), ("machine", "<u2"), ("version", "<u4"), ("entry", "<u8"),
     ("phoff", "<u8"), ("shoff", "<u8"), ("flags", "<u4"), ("ehsize", "<u2"),
     ("phentsize", "<u2"), ("phnum", "<u2"), ("shentsize", "<u2"), ("shnum", "<u2"),
     ("shstrndx", "<u2")]
)  # fmt: skip
_SEGMENT = np.dtype(
    [("type", "<u4"), ("flags", "<u4"), ("offset", "<u8"), ("vaddr", "<u8"), ("paddr", "<u8"),
     ("filesz", "<u8"), ("memsz", "<u8"), ("align", "<u8")]
)  # fmt: skip
_SECTION = np.dtype(
    [("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("addr", "<u8"), ("offset", "<u8"),
     ("size", "<u8"), ("link", "<u4"), ("info", "<u4"), ("align", "<u8"), ("entsize", "<u8")]
)  # fmt: skip
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("shndx", "<u2"), ("value", "<u8"),
     ("size", "<u8")]
)  # fmt: skip

_MAGIC_64_LE = b"\x7fELF\x02\x01"
_PT_LOAD, _PT_NOTE = 1, 4
_SHT_SYMTAB, _SHT_DYNSYM = 2, 11
_STT_FUNC, _STT_GNU_IFUNC = 2, 10
_NT_GNU_BUILD_ID = 3
_TABLE_LIMIT_BYTES = 1 << 30
_NOTE_LIMIT_BYTES = 1 << 16
_NAME_LIMIT_BYTES = 1 << 16
_LOOK_BACK = 32

_U64 = npt.NDArray[np.uint64]
_U32 = npt.NDArray[np.uint32]
_U8 = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Segment:
    """A loaded part of the file: where in the file, and at which link-time address."""

    offset: int
    vaddr: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SymbolTable:
    """Function symbols sorted by address; the names stay in the file.

    Args:
        values, ends: link-time start and end of each function.
        names: offset of each name in the string table.
        local: 1 where the symbol is local to its file.
        strings_offset, strings_bytes: the string table's place in the file.
    """

    values: _U64
    ends: _U64
    names: _U32
    local: _U8
    strings_offset: int
    strings_bytes: int

    def lookup(self, vaddr: int, read: Reader) -> bytes | None:
        """The (mangled) name of the function that holds vaddr; None where none does."""
        last = int(np.searchsorted(self.values, np.uint64(vaddr), side="right")) - 1
        aliases: list[tuple[int, int]] = []
        for i in range(last, max(-1, last - _LOOK_BACK), -1):
            if aliases and self.values[i] != self.values[aliases[0][0]]:
                break
            if vaddr < self.ends[i]:
                aliases.append((i, int(self.local[i])))
        names = [(self._name(i, read), local) for i, local in aliases]
        # Aliases share an address: the public name says more than __libc_ and ___ variants.
        spelled = [
            (len(name) - len(name.lstrip(b"_")), local, len(name), name)
            for name, local in names
            if name
        ]
        return min(spelled)[3] if spelled else None

    def _name(self, index: int, read: Reader) -> bytes:
        start = int(self.names[index])
        if start >= self.strings_bytes:
            return b""
        room = min(self.strings_bytes - start, _NAME_LIMIT_BYTES)
        for size in (256, room):
            text, end, _ = read(self.strings_offset + start, min(size, room)).partition(b"\0")
            if end:
                return text
        return b""


@dataclass(frozen=True, slots=True)
class ElfImage:
    """What symbolisation needs of one ELF object.

    Args:
        build_id: hex GNU build id, "" for none.
        segments: loaded segments.
        tables: symbol tables, the most complete first.
        has_symtab: the full table is there, not only the exported names.
    """

    build_id: str = ""
    segments: tuple[Segment, ...] = ()
    tables: tuple[SymbolTable, ...] = field(default=(), repr=False)
    has_symtab: bool = False

    def vaddr(self, offset: int) -> int | None:
        """Link-time address of a file offset; None where the file does not load it."""
        for segment in self.segments:
            if segment.offset <= offset < segment.offset + segment.size_bytes:
                return offset - segment.offset + segment.vaddr
        return None


def _array(read: Reader, dtype: np.dtype[np.void], offset: int, count: int) -> npt.NDArray[np.void]:
    """`count` records from the file, fewer where it ends early or claims absurd sizes."""
    size = count * dtype.itemsize
    if offset < 0 or size <= 0 or size > _TABLE_LIMIT_BYTES or offset > 1 << 62:
        return np.empty(0, dtype)
    raw = read(offset, size)
    return np.frombuffer(raw, dtype, count=len(raw) // dtype.itemsize)


def _build_id(read: Reader, segments: npt.NDArray[np.void]) -> str:
    for segment in segments[segments["type"] == _PT_NOTE]:
        size = min(int(segment["filesz"]), _NOTE_LIMIT_BYTES)
        if int(segment["offset"]) > 1 << 62:
            continue
        raw, at = read(int(segment["offset"]), size), 0
        while at + 12 <= len(raw):
            name_bytes, text_bytes, kind = np.frombuffer(raw, "<u4", count=3, offset=at).tolist()
            text_at = at + 12 + (name_bytes + 3 & ~3)
            if kind == _NT_GNU_BUILD_ID and raw[at + 12 : at + 16] == b"GNU\0":
                return raw[text_at : text_at + text_bytes].hex()
            at = text_at + (text_bytes + 3 & ~3)
    return ""


def _table(read: Reader, sections: npt.NDArray[np.void], kind: int) -> SymbolTable | None:
    for section in sections[sections["type"] == kind]:
        link = int(section["link"])
        if link >= len(sections) or int(section["entsize"]) != _SYMBOL.itemsize:
            continue
        strings = sections[link]
        count = int(section["size"]) // _SYMBOL.itemsize
        symbols = _array(read, _SYMBOL, int(section["offset"]), count)
        kinds = symbols["info"] & 15
        is_function = (kinds == _STT_FUNC) | (kinds == _STT_GNU_IFUNC)
        symbols = symbols[is_function & (symbols["shndx"] != 0) & (symbols["size"] > 0)]
        if not len(symbols) or int(strings["offset"]) > 1 << 62:
            continue
        symbols = symbols[np.argsort(symbols["value"], kind="stable")]
        values = np.ascontiguousarray(symbols["value"])
        return SymbolTable(
            values=values,
            ends=values + symbols["size"],
            names=np.ascontiguousarray(symbols["name"]),
            local=(symbols["info"] >> 4 == 0).astype(np.uint8),
            strings_offset=int(strings["offset"]),
            strings_bytes=int(strings["size"]),
        )
    return None


def read_image(read: Reader) -> ElfImage:
    """Parse an ELF object; an empty image for anything that is not 64-bit little-endian ELF."""
    header = _array(read, _HEADER, 0, 1)
    if not len(header) or not bytes(header[0]["ident"]).startswith(_MAGIC_64_LE):
        return ElfImage()
    head = header[0]
    segments, sections = np.empty(0, _SEGMENT), np.empty(0, _SECTION)
    if int(head["phentsize"]) == _SEGMENT.itemsize:
        segments = _array(read, _SEGMENT, int(head["phoff"]), int(head["phnum"]))
    if int(head["shentsize"]) == _SECTION.itemsize:
        sections = _array(read, _SECTION, int(head["shoff"]), int(head["shnum"]))
    loaded = tuple(
        Segment(int(s["offset"]), int(s["vaddr"]), int(s["filesz"]))
        for s in segments[segments["type"] == _PT_LOAD]
    )
    full = _table(read, sections, _SHT_SYMTAB)
    exported = None if full else _table(read, sections, _SHT_DYNSYM)
    tables = tuple(table for table in (full, exported) if table is not None)
    return ElfImage(_build_id(read, segments), loaded, tables, full is not None)


def file_reader(handle: int) -> Reader:
    """A Reader of an open file descriptor; what cannot be read is empty."""

    def read(offset: int, size: int) -> bytes:
        try:
            return os.pread(handle, size, offset)
        except (OSError, OverflowError):
            return b""

    return read


def debug_file(build_id: str, root: Path = Path("/usr/lib/debug")) -> Path | None:
    """The separate debug file of a build id, where the distribution's package is installed."""
    path = root / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    return path if len(build_id) > 2 and path.is_file() else None


def names_at(image: ElfImage, vaddrs: Sequence[int], read: Reader) -> list[bytes | None]:
    """Names of several addresses, from the image's tables in order."""
    names: list[bytes | None] = []
    for vaddr in vaddrs:
        candidates = (table.lookup(vaddr, read) for table in image.tables)
        names.append(next((name for name in candidates if name), None))
    return names
