"""The forms in which a trace can be written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import IO

from relkit.timeline.json_sinks import ChromeSink, SpeedscopeSink
from relkit.timeline.perfetto import PerfettoSink
from relkit.timeline.sink import TraceSink

SINKS: Mapping[str, Callable[[IO[bytes]], TraceSink]] = {
    "perfetto": PerfettoSink,
    "chrome": ChromeSink,
    "speedscope": SpeedscopeSink,
}
