"""xpu_timer's own timelines: RRRRR-WWWWW.timeline, with names in RRRRR-WWWWW.timeline.meta.

The message KernelTraces of its public hook.proto (DLRover, xpu_timer/protos). Times are of the wall
clock, us; which stream a kernel ran on is not in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from relkit.errors import BadInputFile
from relkit.files.input_file import read_input
from relkit.hook import layout
from relkit.hook.model import Communicator, OpKind
from relkit.stacks import wire
from relkit.text.printable import printable_line
from relkit.timeline.model import GC_MARK, INPUT_MARK, Hook, RankIdentity, RankTimeline

SUFFIX = ".timeline"
_LIMIT_BYTES = 512 << 20
_MAX_TRACES = 4_000_000
_MAX_NAME = 200
_MAX_US = 1 << 52
_MAX_WORD = (1 << 63) - 1
_COLLECTIVES = re.compile(
    r"allreduce|allgather|reducescatter|alltoall|broadcast|reduce|send|recv|barrier", re.IGNORECASE
)
_OURS = {"reducescatter": "reduce_scatter"}
_NEXT = "Dump that rank again with xpu_timer_dump_timeline, or leave the file out."
Fields = Mapping[int, "list[tuple[int, int, int]]"]


class _Table:
    """Rows and what they mean, as they are read."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []
        self.details: dict[int, dict[str, int | float | str]] = {}
        self.hooks: dict[Hook, int] = {}
        self.groups: dict[tuple[str, int], int] = {}

    def hook(self, name: str, kind: OpKind) -> int:
        """Number of an operation."""
        number = self.hooks.setdefault(Hook(name, kind), len(self.hooks))
        if number >= 1 << 16:
            raise wire.WireError("more operations than a trace has")
        return number

    def group(self, name: str, size: int) -> int:
        """Number of a group."""
        number = self.groups.setdefault((name, size), len(self.groups))
        if number >= 1 << 15:
            raise wire.WireError("more groups than a job has")
        return number


def read_xpu_timer(path: Path) -> RankTimeline:
    """A rank's kernels and host functions.

    Raises:
        BadInputFile: it cannot be read, or is none.
    """
    rank, _, world = path.name.removesuffix(SUFFIX).partition("-")
    try:
        data = read_input(path, _LIMIT_BYTES)
        names = _names(path)
        table, cut, pid = _Table(), "", 0
        try:
            for number, kind, a, b in wire.fields(data, 0, len(data)):
                if number == 3 and kind == wire.VARINT:
                    pid = a & 0x7FFFFFFF
                elif number in (1, 2):
                    wire.expect(number, kind, wire.BYTES)
                    if len(table.rows) >= _MAX_TRACES:
                        cut = f"only its first {_MAX_TRACES} operations were read"
                        break
                    (_kernel if number == 1 else _host)(table, data, a, b, names)
        except wire.WireError as error:
            if not table.rows:
                raise
            cut = str(error)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInputFile(f"{path}: {reason}", next_step=_NEXT) from error
    if not table.rows:
        raise BadInputFile(f"{path}: it holds no timeline of xpu_timer", next_step=_NEXT)
    return RankTimeline(
        RankIdentity(int(rank), int(world), "", pid, f"rank {rank}", 0),
        tuple(table.hooks),
        tuple(
            Communicator(index, -1, size, name) for index, (name, size) in enumerate(table.groups)
        ),
        np.array(table.rows, layout.OP),
        cut=cut,
        details=table.details,
    )


def _names(path: Path) -> dict[int, str]:
    """Code of a kernel -> its name; none where the file is missing."""
    try:
        text = read_input(path.with_name(path.name + ".meta"), 64 << 20).decode("utf-8", "replace")
    except OSError:
        return {}
    named: dict[int, str] = {}
    for line in text.splitlines():
        code, comma, name = line.partition(",")
        if comma and code.strip().isascii() and code.strip().isdecimal() and len(code) < 12:
            named[int(code)] = printable_line(name.strip())[:_MAX_NAME]
    return named


def _read(data: bytes, start: int, end: int) -> dict[int, list[tuple[int, int, int]]]:
    """Field -> (wire type, a, b) of each time that it is there."""
    fields: dict[int, list[tuple[int, int, int]]] = {}
    for number, kind, a, b in wire.fields(data, start, end):
        fields.setdefault(number, []).append((kind, a, b))
    return fields


def _number(fields: Fields, number: int) -> int:
    """The last value of a field, 0 where it is not there."""
    kind, value, _ = fields.get(number, [(wire.VARINT, 0, 0)])[-1]
    wire.expect(number, kind, wire.VARINT)
    return value


def _text(data: bytes, fields: Fields, number: int) -> str:
    kind, a, b = fields.get(number, [(wire.BYTES, 0, 0)])[-1]
    wire.expect(number, kind, wire.BYTES)
    return printable_line(data[a:b].decode("utf-8", "replace"))[:_MAX_NAME]


def _numbers(data: bytes, fields: Fields, number: int) -> list[int]:
    """A repeated number, packed or not."""
    values: list[int] = []
    for kind, a, b in fields.get(number, []):
        if kind == wire.VARINT:
            values.append(a)
            continue
        wire.expect(number, kind, wire.BYTES)
        while a < b and len(values) < 16:
            value, a = wire.read_varint(data, a, b)
            values.append(value)
    return values


def _part(data: bytes, fields: Fields, number: int) -> Fields | None:
    if number not in fields:
        return None
    kind, a, b = fields[number][-1]
    wire.expect(number, kind, wire.BYTES)
    return _read(data, a, b)


def _kernel(table: _Table, data: bytes, start: int, end: int, names: Mapping[int, str]) -> None:
    fields = _read(data, start, end)
    start_us, took_us, delay_us = (_number(fields, number) for number in (3, 4, 5))
    if start_us > _MAX_US or took_us > _MAX_US:
        raise wire.WireError(f"a time that cannot be before byte {end}")
    code = _number(fields, 2)
    name = names.get(code) or f"kernel {code}"
    kind, group, seq, size_bytes, flops = OpKind.KERNEL, -1, -1, 0, 0
    details: dict[str, int | float | str] = {}
    if (product := _part(data, fields, 7)) is not None:
        kind = OpKind.GEMM
        shape = _numbers(data, product, 1)
        if len(shape) == 4 and max(shape) < 1 << 31:
            details["shape_bmnk"] = "x".join(map(str, shape))
            flops = 2 * shape[0] * shape[1] * shape[2] * shape[3]
            flops = flops if flops <= _MAX_WORD else 0
        details |= {"dtype": _text(data, product, 2), "api": _text(data, product, 7)}
    elif (transfer := _part(data, fields, 9)) is not None:
        kind = OpKind.COLLECTIVE
        if match := _COLLECTIVES.search(name.replace("_", "")):
            name = _OURS.get(match[0].lower(), match[0].lower())
        kind = OpKind.P2P if name in ("send", "recv") else kind
        group = table.group(f"{_number(transfer, 3):016x}", _number(transfer, 6) & 0x7FFFFFFF)
        seq = min(_number(transfer, 8), _MAX_WORD)
        size_bytes = min(_number(transfer, 9) or _number(transfer, 4), _MAX_WORD)
        details["dtype"] = _text(data, transfer, 5)
    elif (memory := _part(data, fields, 10)) is not None:
        kind, size_bytes = OpKind.MEMORY, min(_number(memory, 1), _MAX_WORD)
        details["direction"] = _text(data, memory, 2)
    on_device = not _number(fields, 11)
    begin_ns = start_us * 1000
    queued_ns = max(1, begin_ns - min(delay_us, start_us) * 1000) if on_device else 0
    hook = table.hook(name, kind)
    if details := {key: value for key, value in details.items() if value != ""}:
        table.details[len(table.rows)] = details
    table.rows.append(
        (begin_ns, begin_ns + took_us * 1000, seq, size_bytes, 0, hook, group, 0, -1, flops,
         queued_ns)
    )  # fmt: skip


def _host(table: _Table, data: bytes, start: int, end: int, _names: Mapping[int, str]) -> None:
    fields = _read(data, start, end)
    start_us, took_us = _number(fields, 1), _number(fields, 2)
    if start_us > _MAX_US or took_us > _MAX_US:
        raise wire.WireError(f"a time that cannot be before byte {end}")
    name, kind = _text(data, fields, 3) or "host function", OpKind.WAIT
    if name.lower() == "gc":
        name, kind = GC_MARK, OpKind.MARK
    elif "dataloader" in name.lower():
        name, kind = INPUT_MARK, OpKind.MARK
    begin_ns = start_us * 1000
    row = (begin_ns, begin_ns + took_us * 1000, -1, 0, 0, table.hook(name, kind), -1, 0, -1, 0, 0)
    table.rows.append(row)
