"""The .stacktrace file: one a rank, in xpu_timer's protobuf layout plus relkit's own facts.

docs/dump-format.md has the layout. Inside a thread the numbers that differ on every rank come
first and the frames last, so that equal stacks are equal bytes and a merge can compare them
without taking them apart (the native one parses the innermost frame, whose offset differs).
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from relkit.errors import BadDump
from relkit.files.input_file import open_input
from relkit.output import write_atomic
from relkit.stacks import wire
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack
from relkit.stacks.roles import role_of_frames, role_of_name

FORMAT_VERSION = 1
MAX_FILE_BYTES = 64 << 20
MAX_THREADS = 65_536
MAX_FRAMES = 65_536
MAX_FILE_FRAMES = 262_144
MAX_TEXTS = 4096

SUFFIX = ".stacktrace"
_NAME = re.compile(r"(\d{5,10})-(\d{5,10})\.stacktrace", re.ASCII)
_MAX_RANK = (1 << 31) - 1
_ROLES = {role.value: role for role in Role}

# What a thread's bytes from its first frame on mean; kept by a merge, where they repeat.
FrameMemo = MutableMapping[bytes, tuple[Frame, ...]]


def file_name(rank: int, world_size: int) -> str:
    """The name of a rank's file: five digits each, more where the numbers need them."""
    return f"{rank:05d}-{world_size:05d}{SUFFIX}"


def parse_name(name: str) -> tuple[int, int]:
    """(rank, world size) as a file's name says them.

    Raises:
        BadDump: it is not RRRRR-WWWWW.stacktrace.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise BadDump(f"{name}: the name is not RRRRR-WWWWW{SUFFIX}")
    return int(match[1]), int(match[2])


def _native_thread(thread: ThreadStack) -> bytes:
    parts = [
        wire.number_field(1, thread.os_thread_id & 0xFFFFFFFF),
        wire.text_field(2, thread.name),
        wire.text_field(1000, thread.role.value),
        wire.text_field(1001, thread.state),
        wire.text_field(1002, thread.kernel),
    ]
    for frame in thread.frames:
        body = (
            wire.text_field(1, frame.func)
            + wire.text_field(2, frame.source)
            + wire.text_field(1000, frame.build_id)
            + wire.number_field(1001, frame.offset)
            + wire.text_field(1002, frame.module)
        )
        parts.append(wire.bytes_field(3, body))
    return b"".join(parts)


def _python_thread(thread: ThreadStack, pid: int) -> bytes:
    parts = [
        wire.number_field(4, thread.os_thread_id & 0xFFFFFFFF),
        wire.number_field(1, pid & 0xFFFFFFFF),
        wire.number_field(2, thread.thread_id),
        wire.text_field(3, thread.name),
        wire.number_field(5, thread.active),
        wire.number_field(6, thread.owns_gil),
        wire.text_field(1000, thread.role.value),
        wire.text_field(1001, thread.state),
        wire.text_field(1002, thread.kernel),
    ]
    for frame in thread.frames:
        body = (
            wire.text_field(1, frame.func)
            + wire.text_field(2, frame.source)
            + wire.text_field(3, frame.module)
            + wire.text_field(1000, frame.build_id)
            + wire.number_field(1001, frame.offset)
            + wire.number_field(1002, not frame.entry)
        )
        parts.append(wire.bytes_field(7, body))
    return b"".join(parts)


def encode(dump: RankDump) -> bytes:
    """A dump as the bytes of its file; the original viewer reads them too."""
    facts = [
        wire.number_field(1, FORMAT_VERSION),
        wire.text_field(2, dump.host),
        wire.number_field(3, dump.world_size),
        wire.text_field(4, dump.job_id),
        wire.number_field(5, dump.captured_unix_ns),
    ]
    for number, texts in ((6, dump.engines), (7, dump.notes)):
        facts += [wire.bytes_field(number, text.encode("utf-8", "replace")) for text in texts]
    facts.append(wire.text_field(8, dump.hook_json))
    parts = [
        wire.number_field(3, dump.pid),
        wire.number_field(4, dump.rank),
        wire.text_field(11, dump.process_state),
        wire.bytes_field(1000, b"".join(facts)),
    ]
    parts += [wire.bytes_field(1, _native_thread(thread)) for thread in dump.native]
    parts += [wire.bytes_field(2, _python_thread(thread, dump.pid)) for thread in dump.python]
    return b"".join(parts)


def _text(data: bytes, start: int, end: int) -> str:
    return data[start:end].decode("utf-8", "replace")


def _frame(data: bytes, start: int, end: int, python: bool) -> Frame:
    func = source = module = build_id = ""
    offset = 0
    entry = True
    module_field = 3 if python else 1002
    for number, kind, a, b in wire.fields(data, start, end):
        if number in (1, 2, 3, 1000, module_field):
            wire.expect(number, kind, wire.BYTES)
            if number == 1:
                func = _text(data, a, b)
            elif number == 2:
                source = _text(data, a, b)
            elif number == module_field:
                module = _text(data, a, b)
            elif number == 1000:
                build_id = _text(data, a, b)
        elif number == 1001:
            wire.expect(number, kind, wire.VARINT)
            offset = a
        elif number == 1002:
            wire.expect(number, kind, wire.VARINT)
            entry = a == 0
    return Frame(func, source, module, build_id, offset, entry)


class _Thread:
    """One thread message being read; fields may come in any order, and the last one counts."""

    __slots__ = ("active", "frames", "lwp", "owns_gil", "texts", "thread_id")

    def __init__(self) -> None:
        self.lwp = self.thread_id = 0
        self.active = self.owns_gil = False
        self.texts: dict[str, str] = {}
        self.frames: list[Frame] = []

    def stack(self) -> tuple[ThreadStack, bool]:
        """The thread, and whether the file says its role."""
        texts = self.texts
        thread = ThreadStack(
            os_thread_id=self.lwp,
            name=texts.get("name", ""),
            frames=tuple(self.frames),
            role=_ROLES.get(texts.get("role", ""), Role.OTHER),
            state=texts.get("state", ""),
            thread_id=self.thread_id,
            active=self.active,
            owns_gil=self.owns_gil,
            kernel=texts.get("kernel", ""),
        )
        return thread, bool(texts.get("role"))


_NATIVE_TEXTS = {2: "name", 1000: "role", 1001: "state", 1002: "kernel"}
_PYTHON_TEXTS = {3: "name", 1000: "role", 1001: "state", 1002: "kernel"}
_NATIVE_NUMBERS = frozenset({1})
_PYTHON_NUMBERS = frozenset({1, 2, 4, 5, 6})


def _number(thread: _Thread, python: bool, number: int, value: int) -> None:
    if number == (4 if python else 1):
        thread.lwp = value & 0xFFFFFFFF
    elif number == 2:
        thread.thread_id = value
    elif number == 5:
        thread.active = value != 0
    elif number == 6:
        thread.owns_gil = value != 0


def _thread(
    data: bytes, start: int, end: int, python: bool, memo: FrameMemo | None
) -> tuple[ThreadStack, bool]:
    thread = _Thread()
    frames_field = 7 if python else 3
    texts = _PYTHON_TEXTS if python else _NATIVE_TEXTS
    numbers = _PYTHON_NUMBERS if python else _NATIVE_NUMBERS
    at = start
    tail: bytes | None = None
    only_frames = True
    for number, kind, a, b in wire.fields(data, start, end):
        if number == frames_field:
            wire.expect(number, kind, wire.BYTES)
            if memo is not None and tail is None:
                tail = data[at:end]
                known = memo.get(tail)
                if known is not None:
                    thread.frames.extend(known)
                    return thread.stack()
            thread.frames.append(_frame(data, a, b, python))
            if len(thread.frames) > MAX_FRAMES:
                raise wire.WireError(f"a thread has more than {MAX_FRAMES} frames")
        elif number in texts:
            wire.expect(number, kind, wire.BYTES)
            thread.texts[texts[number]] = _text(data, a, b)
            only_frames = only_frames and tail is None
        elif number in numbers:
            wire.expect(number, kind, wire.VARINT)
            _number(thread, python, number, a)
            only_frames = only_frames and tail is None
        at = b
    if memo is not None and tail is not None and only_frames:
        memo[tail] = tuple(thread.frames)
    return thread.stack()


class _Facts:
    """relkit's own submessage; `present` stays False in files of the original tool."""

    __slots__ = ("captured_unix_ns", "engines", "notes", "present", "texts", "world_size")

    def __init__(self) -> None:
        self.present = False
        self.world_size = self.captured_unix_ns = 0
        self.texts: dict[int, str] = {}
        self.engines: list[str] = []
        self.notes: list[str] = []

    def read(self, data: bytes, start: int, end: int) -> None:
        self.present = True
        for number, kind, a, b in wire.fields(data, start, end):
            if number in (1, 3, 5):
                wire.expect(number, kind, wire.VARINT)
                if number == 3:
                    self.world_size = wire.int32(a)
                elif number == 5:
                    self.captured_unix_ns = wire.int64(a)
            elif number in (2, 4, 6, 7, 8):
                wire.expect(number, kind, wire.BYTES)
                text = _text(data, a, b)
                if number == 6:
                    self.engines.append(text)
                elif number == 7:
                    self.notes.append(text)
                else:
                    self.texts[number] = text
                if max(len(self.engines), len(self.notes)) > MAX_TEXTS:
                    raise wire.WireError(f"more than {MAX_TEXTS} notes")


def _identity(name: str, has_rank: bool, rank: int, facts: _Facts) -> tuple[int, int]:
    """(rank, world size): the header's where it says them, else the name's."""
    match = _NAME.fullmatch(name)
    if not has_rank and not facts.present:
        if match is None:
            raise wire.WireError("neither the file nor its name says which rank it is")
        rank = int(match[1])
    world_size = facts.world_size
    if not world_size and match is not None:
        world_size = int(match[2])
    if not 0 <= rank <= _MAX_RANK or not 0 <= world_size <= _MAX_RANK:
        raise wire.WireError(f"rank {rank} of a world of {world_size}")
    if world_size and rank >= world_size:
        raise wire.WireError(f"rank {rank} is outside its world of {world_size}")
    return rank, world_size


def _decode(data: bytes, name: str, memo: FrameMemo | None) -> RankDump:
    if not data:
        raise wire.WireError("the file is empty")
    if len(data) > MAX_FILE_BYTES:
        raise wire.WireError(f"larger than {MAX_FILE_BYTES >> 20} MiB")
    native: list[tuple[ThreadStack, bool]] = []
    python: list[tuple[ThreadStack, bool]] = []
    facts = _Facts()
    pid = rank = frames = 0
    has_rank = False
    process_state = ""
    for number, kind, a, b in wire.fields(data, 0, len(data)):
        if number in (3, 4):
            wire.expect(number, kind, wire.VARINT)
            if number == 3:
                pid = wire.int32(a)
            else:
                rank, has_rank = wire.int32(a), True
        elif number <= 11 or number == 1000:
            wire.expect(number, kind, wire.BYTES)
            if number <= 2:
                threads = python if number == 2 else native
                threads.append(_thread(data, a, b, number == 2, memo))
                frames += len(threads[-1][0].frames)
                if frames > MAX_FILE_FRAMES:
                    raise wire.WireError(f"more than {MAX_FILE_FRAMES} frames in all its threads")
                if len(native) + len(python) > MAX_THREADS:
                    raise wire.WireError(f"more than {MAX_THREADS} threads")
            elif number == 11:
                process_state = _text(data, a, b)
            elif number == 1000:
                facts.read(data, a, b)
    rank, world_size = _identity(name, has_rank, rank, facts)
    return RankDump(
        rank=rank,
        world_size=world_size,
        pid=pid,
        process_state=process_state,
        native=_with_roles(native, pid),
        python=_with_roles(python, pid),
        host=facts.texts.get(2, ""),
        job_id=facts.texts.get(4, ""),
        captured_unix_ns=facts.captured_unix_ns,
        engines=tuple(facts.engines),
        notes=tuple(facts.notes),
        hook_json=facts.texts.get(8, ""),
    )


def _with_roles(threads: list[tuple[ThreadStack, bool]], pid: int) -> tuple[ThreadStack, ...]:
    return tuple(
        thread if has_role else replace(thread, role=_inferred_role(thread, pid))
        for thread, has_role in threads
    )


# The ranks of a job have mostly the same stacks; few entries, because a stack may be huge.
_role_of_frames = lru_cache(maxsize=256)(role_of_frames)


def _inferred_role(thread: ThreadStack, pid: int) -> Role:
    # The original tool writes no roles; the kernel's rule tells the main thread even so.
    if pid and thread.os_thread_id == pid:
        return Role.MAIN
    return role_of_name(thread.name) or _role_of_frames(thread.frames)


def decode(data: bytes, *, name: str = "", memo: FrameMemo | None = None) -> RankDump:
    """Read the bytes of a .stacktrace file, relkit's or the original tool's.

    Args:
        data: the whole file, at most MAX_FILE_BYTES.
        name: its base name, for the rank where the file does not say it, and for messages.
        memo: frames already read, shared by the calls of one merge; equal bytes are read once.

    Raises:
        BadDump: truncated, hostile or not a dump; names the file and what is wrong.
    """
    try:
        return _decode(data, name, memo)
    except wire.WireError as error:
        raise BadDump(f"{name or 'the dump'}: {error}") from error


def read_dump(path: Path, *, memo: FrameMemo | None = None) -> RankDump:
    """Read one file.

    Raises:
        BadDump: it cannot be read, is not a regular file, or decode() refuses it.
    """
    try:
        with open_input(path) as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise BadDump(f"{path.name}: {error.strerror}") from error
    return decode(data, name=path.name, memo=memo)


def write_dump(folder: Path, dump: RankDump) -> Path:
    """Write a rank's file into a folder: whole or not at all, mode 0600.

    Raises:
        UnwritablePath: the folder is missing, read-only or full.
    """
    path = folder / file_name(dump.rank, dump.world_size)
    write_atomic(path, encode(dump))
    return path
