"""A trace as JSON: of Chrome's trace viewer, and of speedscope; written as it comes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from typing import IO, Any

from relkit.timeline.model import FIRST, LAST, NEXT, HostEvent, Slice, Track
from relkit.timeline.sink import RankHead, TraceFacts

_LAUNCHERS = "launchers"


class _JsonSink:
    """What both have in common: a list in an object, of which one element after the other comes.

    Args:
        stream: opened for writing.
    """

    opening = b""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._first = stream, True
        self._facts = TraceFacts(0)
        self._head = RankHead(-1, "")

    def begin(self, facts: TraceFacts) -> None:
        """As TraceSink has it."""
        self._facts = facts
        self._stream.write(self.opening)

    def rank(self, head: RankHead) -> None:
        """As TraceSink has it."""
        self._head = head

    def _put(self, element: dict[str, Any]) -> None:
        text = json.dumps(element, separators=(",", ":"))
        self._stream.write((text if self._first else f",\n{text}").encode())
        self._first = False

    def _us(self, time_ns: int) -> float:
        return (time_ns - self._facts.origin_ns) / 1e3


class ChromeSink(_JsonSink):
    """A TraceSink of the Trace Event Format, which chrome://tracing and ui.perfetto.dev read."""

    opening = b'{"displayTimeUnit":"ns","traceEvents":[\n'

    def host_events(self, events: Iterable[HostEvent]) -> None:
        """As TraceSink has it."""
        threads: dict[str, int] = {}
        for event in events:
            thread = threads.setdefault(event.host, len(threads) + 1)
            lasts = event.end_ns > event.begin_ns
            args: dict[str, Any] = {"text": event.text} | (
                {"rank": event.rank} if event.rank >= 0 else {}
            )
            element: dict[str, Any] = {
                "ph": "X" if lasts else "i",
                "name": event.name,
                "cat": "launcher",
            }
            element |= {"pid": 0, "tid": thread, "ts": self._us(event.begin_ns), "args": args}
            element |= {"dur": (event.end_ns - event.begin_ns) / 1e3} if lasts else {"s": "t"}
            self._put(element)
        self._name("process_name", 0, 0, _LAUNCHERS)
        for host, thread in threads.items():
            self._name("thread_name", 0, thread, f"launcher {host}")

    def rank(self, head: RankHead) -> None:
        """As TraceSink has it."""
        super().rank(head)
        self._name("process_name", head.rank + 1, 0, head.name)
        element = {"ph": "M", "name": "process_sort_index", "pid": head.rank + 1, "tid": 0}
        self._put(element | {"args": {"sort_index": head.rank + 1}})

    def track(self, track: Track, slices: Iterable[Slice]) -> None:
        """As TraceSink has it."""
        pid, tid = self._head.rank + 1, track.number + 1
        self._name("thread_name", pid, tid, track.name)
        for each in slices:
            element: dict[str, Any] = {"ph": "X", "name": each.name, "cat": each.category or "-"}
            element |= {"pid": pid, "tid": tid, "ts": self._us(each.start_ns)}
            if each.end_ns is None:
                element["ph"] = "B"
            else:
                element["dur"] = (each.end_ns - each.start_ns) / 1e3
            element["args"] = dict(each.values)
            self._put(element)
            if each.flow and each.role and each.end_ns is not None:
                self._put(self._arrow(each, pid, tid))

    def end(self) -> None:
        """As TraceSink has it."""
        other = {"origin_unix_ns": self._facts.origin_ns} | dict(self._facts.facts)
        self._stream.write(b'\n],"otherData":' + json.dumps(other).encode() + b"}\n")

    def _arrow(self, each: Slice, pid: int, tid: int) -> dict[str, Any]:
        """The end of an arrow that is in a slice, which holds the time of the arrow's end."""
        at_ns = each.start_ns
        if each.category == "p2p" and each.role == LAST:
            # A receive may be posted before the send; it ends after it.
            at_ns = max(each.start_ns, (each.end_ns or 0) - 1)
        phase = {FIRST: "s", NEXT: "t", LAST: "f"}[each.role]
        element = {"ph": phase, "name": each.name, "cat": "flow", "id": f"0x{each.flow:x}"}
        return {**element, "bp": "e", "pid": pid, "tid": tid, "ts": self._us(at_ns)}

    def _name(self, what: str, pid: int, tid: int, name: str) -> None:
        self._put({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}})


class SpeedscopeSink(_JsonSink):
    """A TraceSink of https://www.speedscope.app: one profile a track, without arrows and values."""

    opening = (
        b'{"$schema":"https://www.speedscope.app/file-format-schema.json",'
        b'"exporter":"relkit timeline","profiles":[\n'
    )

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(stream)
        self._frames: dict[str, int] = {}

    def host_events(self, events: Iterable[HostEvent]) -> None:
        """As TraceSink has it: it has no room for them."""

    def track(self, track: Track, slices: Iterable[Slice]) -> None:
        """As TraceSink has it."""
        finished = (each for each in slices if each.end_ns is not None)
        if (first := next(finished, None)) is None:
            return
        events: list[dict[str, Any]] = []
        for each in chain((first,), finished):
            frame = self._frames.setdefault(each.name, len(self._frames))
            end_us = self._us(each.end_ns or each.start_ns)
            events.append({"type": "O", "frame": frame, "at": self._us(each.start_ns)})
            events.append({"type": "C", "frame": frame, "at": end_us})
        profile = {"type": "evented", "name": f"{self._head.name}: {track.name}"}
        profile |= {"unit": "microseconds", "startValue": events[0]["at"]}
        self._put(profile | {"endValue": events[-1]["at"], "events": events})

    def end(self) -> None:
        """As TraceSink has it."""
        frames = [{"name": name} for name in self._frames]
        shared = json.dumps({"frames": frames}).encode()
        name = json.dumps(str(self._facts.facts.get("job", "relkit timeline"))).encode()
        self._stream.write(b'\n],"shared":' + shared + b',"name":' + name + b"}\n")
