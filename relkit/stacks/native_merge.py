"""The native reader of dump files (librelkit_merge.so), through ctypes.

It compares each thread's bytes with those of the stacks seen before, so that Python decodes
only the distinct ones; the interpreter lock is free meanwhile, and two cores read two halves.
"""

from __future__ import annotations

import ctypes
import os
import struct
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from threading import Event

from relkit.errors import BadDump, RelkitError
from relkit.ranks import MAX_BITS
from relkit.stacks.dumpfile import read_dump
from relkit.stacks.folder import Head, Scan, Scanner
from relkit.stacks.model import Frame, Role
from relkit.stacks.roles import role_of_frames, role_of_name
from relkit.stacks.stack_index import RankTally, StackIndex

LIBRARY_VARIABLE = "RELKIT_MERGE_LIBRARY"
ABI = 6
BUDGET_BYTES = 1 << 30
_BATCH = 256
_MAX_THREADS = 4
_PROGRESS_S = 0.1
_EXPLAINED = 1000
_INTERVAL_BYTES = 8
_NONE = 0xFFFFFFFF
_ROLE_UNSET = 255
_ROLES = tuple(Role)
_OUT_OF_MEMORY = 4
_TEXTS, _FRAMES = 0, 1
_THREAD, _STATE, _NOTE = 0, 1, 2
_SIZE = struct.Struct("=I")

Progress = Callable[[int, int], None]


class _Head(ctypes.Structure):
    _fields_ = (
        ("status", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("world_size", ctypes.c_int32),
        ("job", ctypes.c_uint32),
        ("captured_unix_ns", ctypes.c_int64),
    )


class _Item(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("role", ctypes.c_uint32),
        ("fallback", ctypes.c_uint32),
        ("native_name", ctypes.c_uint32),
        ("python_name", ctypes.c_uint32),
        ("first", ctypes.c_uint32),
        ("second", ctypes.c_uint32),
        ("name_count", ctypes.c_uint32),
        ("threads", ctypes.c_uint64),
        ("interval_count", ctypes.c_uint64),
        ("intervals", ctypes.c_void_p),
        ("names", ctypes.c_uint32 * 8),
    )


def library_path() -> Path:
    """Where the library is, or would be once it is built; RELKIT_MERGE_LIBRARY overrides."""
    override = os.environ.get(LIBRARY_VARIABLE)
    return Path(override) if override else Path(str(files("relkit") / "_lib/librelkit_merge.so"))


@lru_cache(maxsize=4)
def load_library(path: Path) -> ctypes.CDLL | None:
    """The library with the types of its functions; None where it is not built or does not fit."""
    try:
        library = ctypes.CDLL(str(path))
        library.rkm_abi.restype = ctypes.c_uint32
        if library.rkm_abi() != ABI:
            return None
    except (OSError, AttributeError):
        return None
    context, size = ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32)
    library.rkm_new.argtypes = (ctypes.c_uint64,)
    library.rkm_new.restype = context
    library.rkm_free.argtypes = (context,)
    library.rkm_free.restype = None
    library.rkm_read.argtypes = (
        context,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_uint32,
        ctypes.POINTER(_Head),
    )
    library.rkm_read.restype = None
    library.rkm_add.argtypes = (
        context,
        ctypes.c_char_p,
        ctypes.c_uint64,
        ctypes.c_char_p,
        ctypes.POINTER(_Head),
    )
    library.rkm_add.restype = ctypes.c_int32
    library.rkm_item_count.argtypes = (context,)
    library.rkm_item_count.restype = ctypes.c_uint32
    library.rkm_item.argtypes = (context, ctypes.c_uint32, ctypes.POINTER(_Item))
    library.rkm_item.restype = None
    library.rkm_bytes.argtypes = (context, ctypes.c_uint32, ctypes.c_uint32, size)
    library.rkm_bytes.restype = ctypes.c_void_p
    library.rkm_stack.argtypes = (context, ctypes.c_uint32, ctypes.POINTER(context), size)
    library.rkm_stack.restype = ctypes.c_int32
    library.rkm_pack.argtypes = (
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.c_void_p,
        ctypes.c_uint64,
    )
    library.rkm_pack.restype = ctypes.c_int32
    library.rkm_fold.argtypes = (
        ctypes.c_char_p,
        ctypes.c_uint64,
        ctypes.c_char,
        ctypes.c_char_p,
        ctypes.c_uint64,
    )
    library.rkm_fold.restype = ctypes.c_uint64
    library.rkm_write_lines.argtypes = (ctypes.c_int, ctypes.c_void_p)
    library.rkm_write_lines.restype = ctypes.c_int32
    return library


class NativeContext:
    """One context of the library; use as a context manager. Not for two threads at a time."""

    def __init__(self, library: ctypes.CDLL, budget_bytes: int = BUDGET_BYTES) -> None:
        self._library = library
        self._handle = library.rkm_new(budget_bytes)
        if not self._handle:
            raise RelkitError("no memory for the merge", next_step="Free memory on this host.")
        self._frames: list[Frame] = []
        self._texts: dict[int, str] = {}
        self._roles: dict[int, Role] = {}

    def __enter__(self) -> NativeContext:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._library.rkm_free(self._handle)
        self._handle = None

    def read(self, folder: int, names: Sequence[bytes]) -> list[_Head]:
        """Read files of an open folder (a descriptor); one head a file."""
        heads = (_Head * len(names))()
        blob = b"\0".join(names) + b"\0"
        self._library.rkm_read(self._handle, folder, blob, len(names), heads)
        return list(heads)

    def add(self, data: bytes, name: str) -> _Head:
        """Read one file's bytes."""
        head = _Head()
        self._library.rkm_add(self._handle, data, len(data), os.fsencode(name), head)
        return head

    def _bytes(self, table: int, number: int) -> bytes:
        size = ctypes.c_uint32()
        address = self._library.rkm_bytes(self._handle, table, number, size)
        return ctypes.string_at(address, size.value) if address else b""

    def text(self, number: int) -> str:
        """One text by its number."""
        text = self._texts.get(number)
        if text is None:
            text = self._texts[number] = self._bytes(_TEXTS, number).decode("utf-8", "replace")
        return text

    def _frame(self, number: int) -> Frame:
        data = self._bytes(_FRAMES, number)
        # Function, source and a mark, each behind its size. Written out: it is every frame's way.
        (size,) = _SIZE.unpack_from(data)
        middle = _SIZE.size + size
        (size,) = _SIZE.unpack_from(data, middle)
        end = middle + _SIZE.size + size
        func = data[_SIZE.size : middle].decode("utf-8", "replace")
        source = data[middle + _SIZE.size : end].decode("utf-8", "replace")
        return Frame(func, source, entry=len(data) == end + _SIZE.size)

    def _stack(self, number: int) -> tuple[Frame, ...]:
        address, count = ctypes.c_void_p(), ctypes.c_uint32()
        status = self._library.rkm_stack(self._handle, number, address, count)
        if status == _OUT_OF_MEMORY:
            raise MemoryError
        numbers = array("I")
        if count.value:
            numbers.frombytes(ctypes.string_at(address, numbers.itemsize * count.value))
        # A new frame's number is one more than the largest before it.
        for new in range(len(self._frames), max(numbers, default=-1) + 1):
            self._frames.append(self._frame(new))
        return tuple([self._frames[each] for each in numbers])

    def _role(self, role: int, name: int, stack: int) -> Role:
        if role != _ROLE_UNSET:
            return _ROLES[role]
        inferred = role_of_name(self.text(name)) or self._roles.get(stack)
        if inferred is None:
            inferred = self._roles[stack] = role_of_frames(self._stack(stack))
        return inferred

    def _pair_role(self, item: _Item) -> Role:
        native = self._role(item.role, item.native_name, item.first)
        if native is not Role.OTHER:
            return native
        return self._role(item.fallback, item.python_name, item.second)

    def _add_ranks(self, item: _Item, tally: RankTally, rank_bytes: int) -> None:
        # Where bits take no more room than the intervals they are faster to read.
        if rank_bytes <= min(MAX_BITS // 8, _INTERVAL_BYTES * item.interval_count):
            packed = packed_intervals(
                self._library, item.intervals, item.interval_count, rank_bytes
            )
            if packed:
                tally.add_bits(int.from_bytes(packed, "little"))
                return
        tally.add_intervals(_int32s(item.intervals, 2 * item.interval_count))

    def fill(self, index: StackIndex, rank_bytes: int) -> None:
        """Add all that was read to a gathering.

        Args:
            index: the gathering.
            rank_bytes: bytes that hold one bit for each rank up to the highest that was read.

        Raises:
            MemoryError: the stacks do not fit into what the context may allocate.
        """
        item = _Item()
        stacks: dict[int, int | None] = {_NONE: None}
        for at in range(self._library.rkm_item_count(self._handle)):
            self._library.rkm_item(self._handle, at, item)
            if item.kind == _THREAD:
                for number in (item.first, item.second):
                    if number not in stacks:
                        stacks[number] = index.number(self._stack(number))
                role = self._pair_role(item)
                tally = index.thread(stacks[item.first], stacks[item.second], role)
            elif item.kind == _STATE:
                tally = index.state(self.text(item.first))
            else:
                tally = index.note(self.text(item.first))
            tally.threads += item.threads
            self._add_ranks(item, tally, rank_bytes)
            tally.add_names([self.text(name) for name in item.names[: item.name_count]])


def packed_intervals(library: ctypes.CDLL, address: int, count: int, size_bytes: int) -> bytes:
    """The bits of intervals of ranks, lowest first; b"" where a rank has no place in them.

    Args:
        library: that of load_library(); address: of `count` pairs of int32, (low, high) inclusive.
        size_bytes: of the bits.
    """
    packed = ctypes.create_string_buffer(size_bytes)
    return packed.raw if library.rkm_pack(address, count, packed, size_bytes) else b""


def _too_different(folder: Path) -> RelkitError:
    return RelkitError(
        f"the stacks in {folder} differ so much that merging them needs more than "
        f"{BUDGET_BYTES >> 30} GiB",
        next_step="Merge a part of the files in a folder of their own.",
    )


def _int32s(address: int, count: int) -> array[int]:
    """A copy of the library's numbers, none of which becomes an object of Python."""
    made = array("i")
    made.frombytes(ctypes.string_at(address, made.itemsize * count))
    return made


def _head(folder: Path, name: str, raw: _Head, job_id: str, explain: bool) -> Head:
    if raw.status == _OUT_OF_MEMORY:
        raise _too_different(folder)
    if raw.status == 0:
        return Head(name, raw.rank, raw.world_size, job_id, raw.captured_unix_ns)
    reason = "not a dump, or damaged"
    if explain:
        # The reader in Python finds the same fault, and has the words for it.
        try:
            read_dump(folder / name)
        except BadDump as error:
            reason = str(error).removeprefix(f"{name}: ")
        else:
            reason = "changed while it was read"
    return Head(name, error=reason)


def _read_share(
    context: NativeContext,
    folder: int,
    names: Sequence[str],
    report: Callable[[int], None],
    stop: Event,
) -> list[_Head]:
    heads: list[_Head] = []
    for start in range(0, len(names), _BATCH):
        if stop.is_set():
            break
        batch = [os.fsencode(name) for name in names[start : start + _BATCH]]
        heads += context.read(folder, batch)
        report(len(batch))
    return heads


def _in_parallel(
    contexts: Sequence[NativeContext],
    folder: int,
    names: Sequence[str],
    progress: Progress | None,
) -> list[list[_Head]]:
    done = [0] * len(contexts)
    stop = Event()
    cuts = [len(names) * i // len(contexts) for i in range(len(contexts) + 1)]

    def read(index: int) -> list[_Head]:
        def report(count: int) -> None:
            done[index] += count

        share = names[cuts[index] : cuts[index + 1]]
        return _read_share(contexts[index], folder, share, report, stop)

    with ThreadPoolExecutor(len(contexts)) as pool:
        try:
            waiting: set[Future[list[_Head]]] = set()
            futures = [pool.submit(read, index) for index in range(len(contexts))]
            waiting.update(futures)
            while waiting:
                waiting = wait(waiting, timeout=_PROGRESS_S).not_done
                if progress is not None:
                    progress(sum(done), len(names))
        finally:
            stop.set()
    return [future.result() for future in futures]


def native_scanner(path: Path | None = None) -> Scanner | None:
    """The native scanner, or None where the library is not built or does not fit.

    Args:
        path: the library; None takes library_path().
    """
    library = load_library(path or library_path())
    if library is None:
        return None

    def scan(folder: Path, names: Sequence[str], progress: Progress | None) -> Scan:
        cores = len(os.sched_getaffinity(0))
        share_count = max(1, min(_MAX_THREADS, cores, len(names) // _BATCH))
        contexts: list[NativeContext] = []
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise BadDump(f"cannot read the folder {folder}: {error.strerror}") from error
        try:
            contexts += [NativeContext(library) for _ in range(share_count)]
            shares = _in_parallel(contexts, descriptor, names, progress)
            heads: list[Head] = []
            index = StackIndex()
            bad = 0
            rank_bytes = max([raw.rank for share in shares for raw in share], default=0) // 8 + 1
            for context, share in zip(contexts, shares, strict=True):
                jobs = {job: context.text(job) for job in {raw.job for raw in share}}
                for raw in share:
                    bad += raw.status != 0
                    name = names[len(heads)]
                    heads.append(_head(folder, name, raw, jobs[raw.job], bad <= _EXPLAINED))
                context.fill(index, rank_bytes)
            return Scan(heads, index)
        except MemoryError as error:
            raise _too_different(folder) from error
        finally:
            os.close(descriptor)
            for context in contexts:
                context.__exit__()

    return scan
