"""Addresses -> frames: each (object, offset) is named once for all ranks of the host."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relkit.stacks.demangle import function_name
from relkit.stacks.elf_symbols import (
    ElfImage,
    Reader,
    debug_file,
    file_reader,
    names_at,
    read_image,
)
from relkit.stacks.maps import Mapping, ObjectKey, mapping_of, read_maps
from relkit.stacks.model import Frame

_DELETED = " (deleted)"
_VDSO = "[vdso]"
_MAPS_TIMEOUT_S = 0.5


@dataclass(slots=True)
class _Source:
    """An ELF file that can be opened again when names are needed (no descriptor is kept)."""

    image: ElfImage
    path: str = ""
    content: bytes = b""

    def names(self, vaddrs: Sequence[int]) -> list[bytes | None]:
        if self.content:
            return names_at(self.image, vaddrs, _bytes_reader(self.content))
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return [None] * len(vaddrs)
        try:
            return names_at(self.image, vaddrs, file_reader(handle))
        finally:
            os.close(handle)


@dataclass(slots=True)
class _Object:
    """One mapped file: its own tables, then those of its separate debug file."""

    sources: list[_Source] = field(default_factory=list)

    @property
    def image(self) -> ElfImage:
        return self.sources[0].image if self.sources else ElfImage()


def _bytes_reader(content: bytes) -> Reader:
    return lambda offset, size: content[offset : offset + size]


def _open_source(path: str) -> _Source | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return _Source(read_image(file_reader(handle)), path)
    finally:
        os.close(handle)


def _own_vdso() -> _Source | None:
    """The kernel gives every process the same vdso image, so ours serves for all."""
    mapping = next((m for m in read_maps(os.getpid(), 1.0) if m.path == _VDSO), None)
    if mapping is None:
        return None
    try:
        with Path("/proc/self/mem").open("rb", buffering=0) as memory:
            memory.seek(mapping.start)
            content = memory.read(mapping.end - mapping.start)
    except OSError:
        return None
    return _Source(read_image(_bytes_reader(content)), content=content)


class Symboliser:
    """Names for addresses, shared by all ranks of a host and kept for the life of the job.

    Threads may share one: a lock is held while an object's tables are read.
    """

    def __init__(self) -> None:
        self._objects: dict[ObjectKey, _Object] = {}
        self._frames: dict[tuple[ObjectKey, int, bool], Frame] = {}
        self._maps: dict[tuple[int, int], tuple[Mapping, ...]] = {}
        self._lock = threading.Lock()

    def _load(self, pid: int, mapping: Mapping) -> _Object:
        known = self._objects.get(mapping.key)
        if known is not None:
            return known
        path, loaded = mapping.path, _Object()
        if path == _VDSO:
            source = _own_vdso()
        elif path.endswith(_DELETED):
            # Replaced on disk: only the kernel still has the file that this process runs.
            source = _open_source(f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}")
        elif path.startswith("/"):
            # Through the process's own root first: it may live in another mount namespace.
            source = _open_source(f"/proc/{pid}/root{path}")
            if source is not None and Path(path).exists():
                source.path = path
            source = source or _open_source(path)
        else:
            source = None
        if source is not None:
            loaded.sources.append(source)
            extra = None if source.image.has_symtab else debug_file(source.image.build_id)
            debug = _open_source(str(extra)) if extra else None
            if debug is not None:
                loaded.sources.append(debug)
        self._objects[mapping.key] = loaded
        return loaded

    def _mappings(self, pid: int, start_ticks: int) -> tuple[Mapping, ...]:
        """Read anew each time (libraries come and go); the last ones where that fails."""
        mappings = read_maps(pid, _MAPS_TIMEOUT_S)
        if mappings:
            self._maps[(pid, start_ticks)] = mappings
        return mappings or self._maps.get((pid, start_ticks), ())

    def warm(self, pid: int, start_ticks: int = 0) -> None:
        """Read the symbol tables of all libraries of a process ahead of need.

        Meant for a quiet moment of a healthy job, from a low-priority thread.
        """
        for mapping in self._mappings(pid, start_ticks):
            with self._lock:
                self._load(pid, mapping)

    def stacks(
        self, pid: int, stacks: Sequence[Sequence[int]], start_ticks: int = 0
    ) -> tuple[tuple[Frame, ...], ...]:
        """Frames of raw stacks.

        Args:
            pid: the process that the addresses belong to (it may have ended since `warm`).
            stacks: addresses innermost first; all but the first are return addresses.
            start_ticks: start time of the process, to tell reused pids apart.
        """
        mappings = self._mappings(pid, start_ticks)
        with self._lock:
            wanted: dict[ObjectKey, set[tuple[int, bool]]] = {}
            placed: dict[tuple[int, bool], tuple[ObjectKey, int, bool]] = {}
            for stack in stacks:
                for i, address in enumerate(stack):
                    spot = (address, i == 0)
                    if spot in placed:
                        continue
                    mapping = mapping_of(mappings, address)
                    if mapping is None or not mapping.path:
                        continue
                    image = self._load(pid, mapping).image
                    vaddr = image.vaddr(address - mapping.start + mapping.offset)
                    at = address - mapping.start + mapping.offset if vaddr is None else vaddr
                    placed[spot] = (mapping.key, at, i == 0)
                    if placed[spot] not in self._frames:
                        wanted.setdefault(mapping.key, set()).add((at, i == 0))
            for key, spots in wanted.items():
                self._name(key, sorted(spots))
            unknown = Frame("??", "")
            frames = self._frames
            return tuple(
                tuple(
                    frames[placed[(address, i == 0)]] if (address, i == 0) in placed else unknown
                    for i, address in enumerate(stack)
                )
                for stack in stacks
            )

    def _name(self, key: ObjectKey, spots: Sequence[tuple[int, bool]]) -> None:
        loaded = self._objects[key]
        # A return address is the instruction after the call, which may belong to the next function.
        vaddrs = [at if innermost else at - 1 for at, innermost in spots]
        names: list[bytes | None] = [None] * len(spots)
        for source in loaded.sources:
            missing = [i for i, name in enumerate(names) if name is None]
            fresh = source.names([vaddrs[i] for i in missing])
            for i, name in zip(missing, fresh, strict=True):
                names[i] = name
        path = key[2].removesuffix(_DELETED)
        module = path.rpartition("/")[2] or path
        for (at, innermost), name in zip(spots, names, strict=True):
            func = function_name(name) if name else f"{module}+{at:#x}" if path else "??"
            frame = Frame(func=func, source=path, build_id=loaded.image.build_id, offset=at)
            self._frames[(key, at, innermost)] = frame


_shared = Symboliser()


def shared() -> Symboliser:
    """The one Symboliser of this process, so that every capture of the job finds it warm."""
    return _shared
