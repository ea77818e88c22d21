"""A trace as Perfetto's protobuf (https://perfetto.dev/docs/reference/trace-packet-proto).

Written with relkit's own few lines of the wire format, which the .stacktrace files have too: the
package `perfetto` would add protobuf and megabytes of classes to every install, to fill in a dozen
fields. The tests read what comes out with that package, and with Perfetto's trace_processor.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import IO

from relkit.stacks.wire import bytes_field, number_field, text_field, varint
from relkit.timeline.model import HostEvent, Slice, Track, Value
from relkit.timeline.sink import RankHead, TraceFacts

_BOOTTIME, _REALTIME = 6, 1
_BEGIN, _END, _INSTANT = 1, 2, 3
_NEEDS_STATE, _CLEARS_STATE = 2, 1
# TracePacket
_TIMESTAMP, _TRACK_EVENT, _DESCRIPTOR, _CLOCKS = 8, 11, 60, 6
_SEQUENCE, _INTERNED, _SEQUENCE_FLAGS = 10, 12, 13
# TrackEvent.flow_ids: arrows go from one to the next by their begin.
_FLOW = 47
_NAMES, _CATEGORIES, _ANNOTATIONS = 2, 1, 3
# Tracks of what is no rank's.
_FACTS_TRACK = 1 << 48
_FLUSH_BYTES = 1 << 20


class PerfettoSink:
    """A TraceSink.

    Args:
        stream: opened for writing.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._held = stream, bytearray()
        self._origin_ns, self._sequence, self._base = 0, 1, 0
        self._interned: dict[tuple[int, str], int] = {}
        self._new: list[bytes] = []
        self._rank = 0

    def begin(self, facts: TraceFacts) -> None:
        """As TraceSink has it."""
        self._origin_ns = facts.origin_ns
        # Times are counted from the origin; this says what they are on the clock on the wall.
        clocks = b"".join(
            bytes_field(1, number_field(1, clock) + number_field(2, time_ns))
            for clock, time_ns in ((_BOOTTIME, 1), (_REALTIME, facts.origin_ns + 1))
        )
        self._packet(bytes_field(_CLOCKS, clocks + number_field(2, _BOOTTIME)))
        self._start_sequence()
        self._describe(_FACTS_TRACK, "relkit: this trace")
        self._event(_INSTANT, _FACTS_TRACK, facts.origin_ns, "facts of this trace", "facts",
                    tuple(facts.facts.items()))  # fmt: skip

    def host_events(self, events: Iterable[HostEvent]) -> None:
        """As TraceSink has it."""
        tracks: dict[tuple[str, bool], tuple[int, int]] = {}
        for event in events:
            lasts = event.end_ns > event.begin_ns
            known = tracks.get((event.host, lasts))
            if known is None:
                known = (_FACTS_TRACK + 1 + len(tracks), 0)
                name = f"launcher {event.host}" + (": phases" if lasts else "")
                self._describe(known[0], name)
            track, free_ns = known
            begin_ns = max(event.begin_ns, free_ns)
            values = [("text", event.text)] if event.text else []
            if event.rank >= 0:
                values.append(("rank", str(event.rank)))
            if lasts and event.end_ns > begin_ns:
                self._event(_BEGIN, track, begin_ns, event.name, "launcher", values)
                self._event(_END, track, event.end_ns)
            elif not lasts:
                self._event(_INSTANT, track, event.begin_ns, event.name, "launcher", values)
            tracks[event.host, lasts] = (track, max(free_ns, event.end_ns))

    def rank(self, head: RankHead) -> None:
        """As TraceSink has it."""
        self._rank, self._base = head.rank, (head.rank + 1) << 16
        self._start_sequence()
        process = number_field(1, head.rank + 1) + text_field(6, head.name)
        # 3: tracks of a rank in the order of their numbers.
        order = number_field(11, 3) + number_field(12, head.rank + 1)
        body = number_field(1, self._base) + bytes_field(3, process) + order
        self._packet(bytes_field(_DESCRIPTOR, body + text_field(2, head.name)))
        self._event(_INSTANT, self._base, self._origin_ns, f"facts of rank {head.rank}", "facts",
                    tuple(head.facts.items()))  # fmt: skip

    def track(self, track: Track, slices: Iterable[Slice]) -> None:
        """As TraceSink has it."""
        uuid = self._base + 1 + track.number
        self._describe(uuid, track.name, self._base, track.number + 1)
        for each in slices:
            self._event(
                _BEGIN, uuid, each.start_ns, each.name, each.category, each.values, each.flow
            )  # fmt: skip
            if each.end_ns is not None:
                self._event(_END, uuid, each.end_ns)

    def end(self) -> None:
        """As TraceSink has it."""
        self._stream.write(self._held)
        self._held.clear()

    def _start_sequence(self) -> None:
        self._sequence += 1
        self._interned.clear()
        self._new.clear()
        self._packet(number_field(_SEQUENCE_FLAGS, _CLEARS_STATE), sequence=True)

    def _describe(self, uuid: int, name: str, parent: int = 0, order: int = 0) -> None:
        body = number_field(1, uuid) + number_field(5, parent) + text_field(2, name)
        # Those of one parent in the order in which they are numbered.
        self._packet(bytes_field(_DESCRIPTOR, body + number_field(12, order)))

    def _event(
        self,
        kind: int,
        track: int,
        time_ns: int,
        name: str = "",
        category: str = "",
        values: Iterable[tuple[str, Value]] = (),
        flow: int = 0,
    ) -> None:
        event = number_field(9, kind) + number_field(11, track)
        if name:
            event += number_field(10, self._id(_NAMES, name))
        if category:
            event += number_field(3, self._id(_CATEGORIES, category))
        for key, value in values:
            event += bytes_field(4, number_field(1, self._id(_ANNOTATIONS, key)) + _value(value))
        if flow:
            event += _fixed64(_FLOW, flow)
        body = number_field(_TIMESTAMP, max(1, time_ns - self._origin_ns + 1))
        body += bytes_field(_TRACK_EVENT, event) + number_field(_SEQUENCE_FLAGS, _NEEDS_STATE)
        if self._new:
            body += bytes_field(_INTERNED, b"".join(self._new))
            self._new.clear()
        self._packet(body, sequence=True)

    def _id(self, kind: int, text: str) -> int:
        """The number under which this sequence knows a text."""
        known = self._interned.get((kind, text))
        if known is None:
            known = len(self._interned) + 1
            self._interned[kind, text] = known
            self._new.append(bytes_field(kind, number_field(1, known) + text_field(2, text)))
        return known

    def _packet(self, body: bytes, *, sequence: bool = False) -> None:
        if sequence:
            body += number_field(_SEQUENCE, self._sequence)
        self._held += b"\x0a" + varint(len(body)) + body
        if len(self._held) > _FLUSH_BYTES:
            self._stream.write(self._held)
            self._held.clear()


def _value(value: Value) -> bytes:
    """The value of a DebugAnnotation."""
    if isinstance(value, float):
        return varint(5 << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        if value < 0 or value >= 1 << 63:
            return varint(4 << 3) + varint(value)
        return varint(3 << 3) + varint(value)
    return bytes_field(6, value.encode("utf-8", "replace"))


def _fixed64(number: int, value: int) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<Q", value)
