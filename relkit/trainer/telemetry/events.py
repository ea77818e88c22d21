"""The event stream of one rank: a JSON object a line, for other parts of relkit to read.

Every line has "event", "rank", "time_s" (of the system's clock) and, but for "start", "step" (done
so far). The events are start, resume, step, evaluate, save, stop, end and error; a step has
"loss", "finite", "grad_norm", "learning_rate", "loss_scale", "step_s" and "phases_s"; the last
two are not known of a step that was saved by survivors of a fault before it was told of.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from relkit.errors import UnwritablePath
from relkit.files.input_file import open_input

_TAIL_BYTES = 1 << 17
PHASES = (
    "data",
    "forward_backward",
    "reduce",
    "prepare",
    "barrier",
    "update",
    "gather",
)


class EventStream:
    """Appends events to OUTPUT_DIR/events/rank_N.jsonl; a line is written at once.

    Args:
        output_dir: of the run.
        rank: global rank.

    Raises:
        UnwritablePath: the file cannot be opened.
    """

    def __init__(self, output_dir: Path, rank: int) -> None:
        self.rank = rank
        self.path = output_dir / "events" / f"rank_{rank}.jsonl"
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._stream = self.path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise UnwritablePath(
                f"cannot write {self.path}: {error.strerror}",
                next_step="Set training_config.output_dir to a folder that you may write.",
            ) from error

    def __enter__(self) -> EventStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.write("error", what=f"{type(error).__name__}: {error}")
        self._stream.close()

    def write(self, event: str, **facts: Any) -> None:  # noqa: ANN401
        """Append one event; numbers that JSON does not know (nan, inf) become null."""
        line = {"event": event, "rank": self.rank, "time_s": time.time()}
        line.update({key: _plain(value) for key, value in facts.items()})
        self._stream.write(json.dumps(line, separators=(",", ":")) + "\n")

    def latest(self) -> list[dict[str, Any]]:
        """The last events of this file, those of earlier runs that wrote into it included."""
        with open_input(self.path) as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _TAIL_BYTES))
            lines = stream.read().decode("utf-8", "replace").split("\n")
        rows = []
        # The first line may be cut by the seek, and any by a death while it was written.
        for line in lines:
            with contextlib.suppress(ValueError):
                rows.append(json.loads(line))
        return [event for event in rows if isinstance(event, dict) and "event" in event]


class PhaseClock:
    """How long each phase of a step took.

    Args:
        begin: told of every phase as it begins.
    """

    def __init__(self, begin: Callable[[str], None]) -> None:
        self._begin = begin
        self.durations_s: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Time what is inside. On a GPU, work that is queued counts where it is waited for."""
        self._begin(name)
        started_s = time.perf_counter()
        try:
            yield
        finally:
            self.durations_s[name] = time.perf_counter() - started_s

    def take(self) -> dict[str, float]:
        """The durations since the last call, rounded to microseconds."""
        taken = {name: round(seconds, 6) for name, seconds in self.durations_s.items()}
        self.durations_s = {}
        return taken


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of one rank; a last line that is still being written is left out."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines]


def _plain(value: Any) -> Any:  # noqa: ANN401
    return None if isinstance(value, float) and not math.isfinite(value) else value
