"""Native stacks by `py-spy --native`, for processes without the hook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relkit.stacks.demangle import strip_arguments
from relkit.stacks.engines.base import EngineResult, Target
from relkit.stacks.engines.pyspy import pyspy_path
from relkit.stacks.engines.pyspy_json import SpyFrame, parse
from relkit.stacks.engines.tracing import run_guarded
from relkit.stacks.model import Frame
from relkit.stacks.symbolise import shared

EVAL_FRAME = "_PyEval_EvalFrameDefault"
"""Stands for one run of the interpreter where an engine has put Python frames in its place."""


def place_interpreter(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The frames with each stand-in put into the interpreter's own file, if one is in sight."""
    files = (frame.source for frame in frames)
    home = next((path for path in files if "python" in path.rpartition("/")[2]), "")
    return tuple(replace(f, source=home) if f.func == EVAL_FRAME else f for f in frames)


def _address(name: str) -> int:
    try:
        return int(name, 16) if name.startswith("0x") else 0
    except ValueError:
        return 0


def _frames(spied: Sequence[SpyFrame], target: Target) -> tuple[Frame, ...]:
    addresses = [_address(item.frame.func) if item.native else 0 for item in spied]
    raw = [address for address in addresses if address]
    # The leading 0 keeps the true addresses from being taken for an innermost frame's.
    named = iter(shared().stacks(target.pid, [[0, *raw]], target.start_ticks)[0][1:])
    frames: list[Frame] = []
    for item, address in zip(spied, addresses, strict=True):
        if address:
            frames.append(next(named))
        elif item.native:
            frames.append(replace(item.frame, func=strip_arguments(item.frame.func)))
        elif item.frame.entry:
            frames.append(Frame(EVAL_FRAME, ""))
    return place_interpreter(frames)


class PySpyNativeEngine:
    """`py-spy dump --native`: seizes the process for up to a second; Python threads only."""

    name = "py-spy --native"

    def native(self, target: Target, timeout_s: float) -> EngineResult:
        """Native stacks of the Python threads.

        Args:
            target: the process; it stands still while py-spy looks.
            timeout_s: when to give up, s.

        Raises:
            CaptureFailed: it must not or could not look; the message says why.
        """
        argv = [pyspy_path(), "dump", "--native", "--json", "--pid", str(target.pid)]
        result = run_guarded(self.name, target.pid, argv, timeout_s)
        threads = tuple(
            replace(thread, frames=_frames(frames, target), thread_id=0, name="")
            for thread, frames in parse(result.stdout)
        )
        note = "native stacks by py-spy --native: threads without Python frames are not in it"
        return EngineResult(self.name, threads, (note,))
