"""Events of a Chrome trace -> columns, of those that tell where a step's time went."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np

from relkit.straggler.model import Flags, Floats, Ints
from relkit.straggler.traces.step_marks import Mark

# Names that are kept; of a trace with more of them the rest are called so.
_MAX_NAMES, _OTHERS = 100_000, "others"
# Events that are kept of one trace: 32 bytes each.
MAX_EVENTS = 30_000_000
_MAX_MARKS, _MAX_MARK_CHARS = 1_000_000, 200


class Kind(IntEnum):
    """What an event is."""

    OPERATION = 0
    """Of the host: a thread is in an operator of the framework."""
    TRANSFER = 1
    """Of the host: communication, with the wait for others."""
    INPUT = 2
    """Of the host: the loop waits for a batch."""
    KERNEL = 3
    """Of a device: it computes, or copies."""
    DEVICE_TRANSFER = 4
    """Of a device: communication, with the wait for others."""
    COLLECTION = 5
    """Python collects garbage."""
    LAUNCH = 6
    """Of the host: something is given to a device."""


# As Kineto writes them; versions of 2020 wrote some of them otherwise.
_HOST_OPERATION = ("cpu_op", "operator")
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "concurrent_kernel")
_ANNOTATION = ("user_annotation",)
_TRANSFER_OPERATION = re.compile(
    r"(?:c10d::|gloo:|nccl:|mpi:|ucc:|xccl:|hccl:|rccl:|record_param_comms|"
    r"_?c10d_functional::)"
)
_OF_DEVICES = ("nccl:", "xccl:", "hccl:", "rccl:")
_TRANSFER_KERNEL = re.compile(
    r"[nrh]ccl|msccl|oneccl|nvshmem|deep_ep|hcom_|cross_device_reduce|multimem_|"
    r"all_?(?:reduce|gather|to_?all)|reduce_?scatter|send_?recv",
    re.IGNORECASE,
)
_COLLECTIVE_IN_NAME = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|broadcast|reduce|send|recv",
    re.IGNORECASE,
)
_INPUT = re.compile(
    r"enumerate\(DataLoader\)|(?:^|\W)(?:data_?load\w*|next_batch|get_batch)\b", re.I
)
_PYTHON_GC = re.compile(r"python gc|gc_collect|garbage collection", re.IGNORECASE)
_BACKWARD_THREAD = "autograd::engine::evaluate_function"
_NUMBERED = re.compile(
    r"(?P<label>ProfilerStep|(?:.*[^A-Za-z])?(?:train(?:ing)?[ _]?)?(?:step|iteration|iter))"
    r"[ #_:=-]*(?P<number>\d{1,15})",
    re.ASCII | re.IGNORECASE,
)
_REPEATED = re.compile(
    r"(?:train(?:ing)?[ _]?)?(?:step|iteration)|Optimizer\.step#.*|"
    r"DistributedDataParallel\.forward|enumerate\(DataLoader\)#.*",
    re.IGNORECASE,
)


class TraceEvents:
    """Call add() with each event of one rank's trace, in the order of the file."""

    def __init__(self) -> None:
        self._starts, self._ends = array("d"), array("d")
        self._kinds, self._names = array("b"), array("i")
        self._threads, self._links = array("i"), array("q")
        self._name_ids: dict[str, int] = {}
        self._thread_ids: dict[str, int] = {}
        self._newest_us = -math.inf
        # Each event begins no earlier than the one before it in the file.
        self.in_order = True
        self.left_out = 0
        # Label -> (begin, end, number or -1, thread) of each mark; times in us.
        self.marks: dict[str, list[Mark]] = {}
        self.backward_threads: set[int] = set()
        # Collectives of a device are called, so that its kernels are where the time goes.
        self.uses_device = False
        # Description of a process group -> its ranks.
        self.groups: dict[str, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, event: Mapping[str, Any]) -> None:
        """Take one; what says nothing of time is passed over."""
        category, name = event.get("cat"), event.get("name")
        if event.get("ph") != "X" or not isinstance(category, str) or not isinstance(name, str):
            return
        start, length = _number(event.get("ts")), _number(event.get("dur"))
        if start is None or length is None or length < 0.0:
            return
        category = category.lower()
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        thread = self._id(self._thread_ids, f"{event.get('pid')}/{event.get('tid')}")
        times = (start, start + length)
        if category in _HOST_OPERATION or category in _ANNOTATION:
            self._add_of_host(name, times, thread, args, category)
        elif category in _DEVICE:
            link = _whole(args.get("correlation"))
            if "Collective name" in args or _is_transfer_kernel(name, category):
                self._note_group(args)
                self._put(Kind.DEVICE_TRANSFER, _collective(name, args), times, thread, link)
            else:
                self._put(Kind.KERNEL, name, times, thread, link)
        elif category.endswith(("_runtime", "_driver")) or category == "runtime":
            link = _whole(args.get("correlation"))
            if link > 0:
                self._put(Kind.LAUNCH, "", times, thread, link)
        elif _PYTHON_GC.search(name):
            self._put(Kind.COLLECTION, "", times, thread)

    def _add_of_host(
        self, name: str, times: tuple[float, float], thread: int, args: Mapping[str, Any],
        category: str,
    ) -> None:  # fmt: skip
        self._mark(name, times, thread)
        kind = _kind_of(name)
        if kind is Kind.OPERATION:
            if category in _ANNOTATION:
                return
            if name.startswith(_BACKWARD_THREAD):
                self.backward_threads.add(thread)
            self._put(kind, name, times, thread)
        elif kind is Kind.TRANSFER:
            self._note_group(args)
            self.uses_device |= name.startswith(_OF_DEVICES)
            self._put(kind, _collective(name, args), times, thread)
        else:
            self._put(kind, "", times, thread)

    def _mark(self, name: str, times: tuple[float, float], thread: int) -> None:
        marked = _mark_of(name)
        if marked is None:
            return
        label, number = marked
        same = self.marks.setdefault(label, [])
        if len(same) < _MAX_MARKS and len(self.marks) < 1000:
            same.append((*times, number, thread))

    def _note_group(self, args: Mapping[str, Any]) -> None:
        name, ranks = args.get("Process Group Description"), args.get("Process Group Ranks")
        # Long lists are written with "..." in them.
        if isinstance(name, str) and isinstance(ranks, str) and "..." not in ranks:
            members = tuple(int(word) for word in re.findall(r"\d{1,9}", ranks))
            if len(self.groups) < 1000:
                self.groups.setdefault(name, members)

    def _put(
        self, kind: Kind, name: str, times: tuple[float, float], thread: int, link: int = 0
    ) -> None:
        if len(self._starts) >= MAX_EVENTS:
            self.left_out += 1
            return
        start, end = times
        self.in_order &= start >= self._newest_us
        self._newest_us = max(self._newest_us, start)
        self._starts.append(start)
        self._ends.append(end)
        self._kinds.append(kind)
        self._names.append(self._id(self._name_ids, name))
        self._threads.append(thread)
        self._links.append(link)

    @staticmethod
    def _id(ids: dict[str, int], name: str) -> int:
        known = ids.get(name)
        if known is None:
            known = ids.setdefault(name if len(ids) < _MAX_NAMES else _OTHERS, len(ids))
        return known

    @property
    def newest_us(self) -> float:
        """The latest begin of an event."""
        return self._newest_us

    def names(self) -> tuple[str, ...]:
        """By number."""
        return tuple(self._name_ids)

    def of(self, *kinds: Kind, threads: frozenset[int] | None = None) -> EventColumns:
        """The events of these kinds, by begin.

        Args:
            threads: of these only; None = of all.
        """
        own = np.frombuffer(self._kinds, np.int8) if self._kinds else np.empty(0, np.int8)
        chosen = np.isin(own, [int(kind) for kind in kinds])
        if threads is not None and len(own):
            mine = np.frombuffer(self._threads, np.int32)
            chosen &= np.isin(mine, np.array(sorted(threads), np.int32))
        at = np.flatnonzero(chosen)
        if not len(at):
            return EventColumns(np.empty(0), np.empty(0), _NO_INTS, _NO_INTS, _NO_INTS)
        starts = np.frombuffer(self._starts, np.float64)[at]
        # The longer one first: it is the outer one.
        ends = np.frombuffer(self._ends, np.float64)[at]
        order = np.lexsort((-ends, starts))
        at = at[order]
        return EventColumns(
            starts[order],
            ends[order],
            np.frombuffer(self._names, np.int32)[at].astype(np.int64),
            np.frombuffer(self._links, np.int64)[at].astype(np.int64),
            np.frombuffer(self._threads, np.int32)[at].astype(np.int64),
        )


@dataclass(frozen=True, slots=True, eq=False)
class EventColumns:
    """Events by begin; of two that begin together the longer one first.

    Args:
        start, end: us; name: number of it; link: between a launch and its kernel, 0 = none.
        thread: number of it.
    """

    start: Floats
    end: Floats
    name: Ints
    link: Ints
    thread: Ints

    def __len__(self) -> int:
        return len(self.start)

    def at(self, places: Ints | Flags) -> EventColumns:
        """Some of them."""
        return EventColumns(
            self.start[places], self.end[places], self.name[places], self.link[places],
            self.thread[places],
        )  # fmt: skip


_NO_INTS = np.empty(0, np.int64)


@lru_cache(maxsize=_MAX_NAMES)
def _kind_of(name: str) -> Kind:
    """What an event of the host is, by its name."""
    if _INPUT.search(name):
        return Kind.INPUT
    if _TRANSFER_OPERATION.match(name):
        return Kind.TRANSFER
    return Kind.COLLECTION if _PYTHON_GC.search(name) else Kind.OPERATION


@lru_cache(maxsize=_MAX_NAMES)
def _mark_of(name: str) -> tuple[str, int] | None:
    """(label, number or -1) of what may mark a step."""
    if len(name) > _MAX_MARK_CHARS:
        return None
    if numbered := _NUMBERED.fullmatch(name):
        return numbered["label"], int(numbered["number"])
    return (name, -1) if _REPEATED.fullmatch(name) else None


@lru_cache(maxsize=_MAX_NAMES)
def _is_transfer_kernel(name: str, category: str) -> bool:
    return "mem" not in category and _TRANSFER_KERNEL.search(name) is not None


def _collective(name: str, args: Mapping[str, Any]) -> str:
    """What is communicated, and among how many: equal on ranks that do the same."""
    told = args.get("Collective name")
    if not isinstance(told, str) or not told:
        in_name = _COLLECTIVE_IN_NAME.search(name)
        told = in_name[0] if in_name else name[:60]
    size = args.get("Group size")
    plain = told.lower().replace("_", "")
    return f"{plain}/{size}" if isinstance(size, int) else plain


def _number(value: object) -> float | None:
    """A time; some tools write it as a text."""
    if isinstance(value, str) and len(value) < 40:
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e18 else None


def _whole(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else 0
