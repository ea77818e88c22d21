"""Marks calls of named functions in the recorder of the rank, as slices of its track of a timeline.

Python tells of the calls where it can (sys.monitoring, 3.12); before that, a wrapper stands in the
place of each of the named functions, and of no other. A call takes two readings of the clock, and a
mark where it lasted; marks are so few that they leave the recorder's ring to the collectives. What
cannot be traced is said once, and the rank trains on.

Loaded into the rank before its script runs, which is to find no module imported that it would not
find under torchrun: of the standard library it needs what Python itself has loaded by then, and
imports the rest once there is something to trace.
"""

from __future__ import annotations

import os
import sys
import time
from _thread import _local

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# As relkit/hook/traced_calls.py has them.
OPTIMIZER_STEP, CHECKPOINT_SAVE, CHECKPOINT_LOAD, FIRST_NAMED = 0, 1, 2, 16
_LEAST_NS, _LEAST_CHECKPOINT_NS = 20_000, 1_000_000
# Marks a second, and at once after a pause: of 4,096 in the ring.
_RATE, _BURST = 100.0, 400.0
_MAX_DEPTH = 64
# sys.monitoring knows six tools, of which four have a meaning.
_TOOLS = (4, 3)
# CO_GENERATOR, CO_COROUTINE and CO_ASYNC_GENERATOR of inspect.
_SUSPENDS = 0x20 | 0x80 | 0x200
_CHECKPOINTS = (
    ("torch.serialization", "save", CHECKPOINT_SAVE),
    ("torch.serialization", "load", CHECKPOINT_LOAD),
    ("torch.distributed.checkpoint.state_dict_saver", "save", CHECKPOINT_SAVE),
    ("torch.distributed.checkpoint.state_dict_saver", "async_save", CHECKPOINT_SAVE),
    ("torch.distributed.checkpoint.state_dict_loader", "load", CHECKPOINT_LOAD),
)


class CallMarks:
    """Writes marks into the recorder, as many as there is room for."""

    def __init__(self) -> None:
        self._pid, self._mark = os.getpid(), None
        self._left, self._at_ns = _BURST, time.monotonic_ns()
        self._unmarked: dict[int, int] = {}

    def add(self, number: int, start_ns: int, end_ns: int) -> None:
        """A call has ended.

        Args:
            number: of the function; start_ns, end_ns: by time.monotonic_ns().
        """
        if os.getpid() != self._pid or not (mark := self._mark or self._found()):
            return
        self._left = min(_BURST, self._left + (end_ns - self._at_ns) * _RATE / 1e9)
        self._at_ns = end_ns
        if self._left < 1.0:
            self._unmarked[number] = self._unmarked.get(number, 0) + 1
            return
        self._left -= 1.0
        mark(number, start_ns, end_ns, self._unmarked.pop(number, 0))

    def _found(self) -> Any:  # noqa: ANN401
        # A standby has no rank yet, and no recorder.
        if "RELKIT_STANDBY" in os.environ:
            return None
        import ctypes

        mark = getattr(ctypes.PyDLL(None), "relkit_mark_call", None)
        if mark is not None:
            mark.argtypes, mark.restype = (ctypes.c_uint64,) * 4, None
        self._mark = mark
        return mark


class CannotTrace(Exception):
    """Its text says why."""


class Monitored:
    """Functions of whose calls Python itself tells.

    Args:
        marks: written for them.

    Raises:
        CannotTrace: other tools have taken all places.
    """

    def __init__(self, marks: CallMarks) -> None:
        self._marks, self._known = marks, dict[object, tuple[int, int]]()
        self._threads = _local()
        python: Any = sys.monitoring  # type: ignore[attr-defined]
        self._tool = next((tool for tool in _TOOLS if python.get_tool(tool) is None), -1)
        if self._tool < 0:
            raise CannotTrace("other tools use all of sys.monitoring")
        python.use_tool_id(self._tool, "relkit")
        python.register_callback(self._tool, python.events.PY_START, self._starts)
        python.register_callback(self._tool, python.events.PY_RETURN, self._returns)

    def watch(self, code: object, number: int, least_ns: int) -> None:
        """Mark its calls from now on."""
        python: Any = sys.monitoring  # type: ignore[attr-defined]
        self._known[code] = (number, least_ns)
        python.set_local_events(self._tool, code, python.events.PY_START | python.events.PY_RETURN)

    def _open(self) -> list[tuple[object, int]]:
        calls: list[tuple[object, int]] | None = getattr(self._threads, "calls", None)
        if calls is None:
            calls = self._threads.calls = []
        return calls

    def _starts(self, code: object, _offset: int) -> None:
        calls = self._open()
        # Calls that an exception has ended are not told of one by one.
        if len(calls) >= _MAX_DEPTH:
            calls.clear()
        calls.append((code, time.monotonic_ns()))

    def _returns(self, code: object, _offset: int, _value: object) -> None:
        calls = self._open()
        while calls:
            known, start_ns = calls.pop()
            if known is code:
                number, least_ns = self._known[code]
                end_ns = time.monotonic_ns()
                if end_ns - start_ns >= least_ns:
                    self._marks.add(number, start_ns, end_ns)
                return


class Tracer:
    """Finds functions once their modules are imported, and has their calls marked.

    Args:
        after_import: (name of a module, what is called with it then).
        says: is told, once each, what cannot be traced.
    """

    def __init__(
        self, after_import: Callable[[str, Any], None], says: Callable[[str], None]
    ) -> None:
        self._after_import, self._says = after_import, says
        self._marks = CallMarks()
        self._monitored: Monitored | None = None

    def defaults(self) -> None:
        """Steps of torch's optimizers; checkpoints of torch.save() and DCP."""
        self._after_import("torch.optim.optimizer", self._watch_optimizers)
        for module, name, number in _CHECKPOINTS:
            self._watch(module, name, number, _LEAST_CHECKPOINT_NS, self._silent)

    def named(self, names: str) -> None:
        """What was asked for.

        Args:
            names: MODULE:FUNCTION, by commas.
        """
        for place, name in enumerate(filter(None, names.split(","))):
            module, _, function = name.partition(":")
            self._watch(module, function, FIRST_NAMED + place, _LEAST_NS, self._says)

    def _silent(self, _text: str) -> None:
        """Another torch has other functions."""

    def _watch(
        self, module: str, name: str, number: int, least_ns: int, says: Callable[[str], None]
    ) -> None:
        def attach(imported: object) -> None:
            try:
                self._attach(imported, name, number, least_ns)
            except Exception as error:  # noqa: BLE001  whatever a module has there, it is imported
                says(f"cannot trace {module}:{name}, the rank goes on: {error}")

        if module in sys.modules:
            attach(sys.modules[module])
        else:
            self._after_import(module, attach)

    def _attach(self, owner: Any, path: str, number: int, least_ns: int) -> None:  # noqa: ANN401
        import inspect

        *owners, name = path.split(".")
        for each in owners:
            owner = getattr(owner, each, None)
        held = inspect.getattr_static(owner, name, None)
        function = held.__func__ if isinstance(held, (staticmethod, classmethod)) else held
        if not callable(function) or isinstance(function, type):
            raise CannotTrace("there is no such function")
        code = getattr(inspect.unwrap(function), "__code__", None)
        if code is not None and code.co_flags & _SUSPENDS:
            raise CannotTrace("a generator or coroutine has no calls that last")
        if code is not None and hasattr(sys, "monitoring"):
            self._monitored = self._monitored or Monitored(self._marks)
            self._monitored.watch(code, number, least_ns)
            return
        marked: Any = _wrapped(function, self._marks, number, least_ns)
        is_bound = isinstance(held, (staticmethod, classmethod))
        setattr(owner, name, type(held)(marked) if is_bound else marked)

    def _watch_optimizers(self, module: Any) -> None:  # noqa: ANN401
        begin = getattr(module, "register_optimizer_step_pre_hook", None)
        end = getattr(module, "register_optimizer_step_post_hook", None)
        if begin is None or end is None:
            return
        # torch's compiler, which is not there yet, is to see none of this where it compiles steps.
        torch, open_steps, add = module.torch, _local(), self._marks.add

        def steps(*_: object) -> None:
            if not torch.compiler.is_compiling():
                open_steps.begun_ns = time.monotonic_ns()

        def stepped(*_: object) -> None:
            if not torch.compiler.is_compiling():
                end_ns = time.monotonic_ns()
                add(OPTIMIZER_STEP, getattr(open_steps, "begun_ns", end_ns), end_ns)

        begin(steps)
        end(stepped)


def _wrapped(
    function: Callable[..., Any], marks: CallMarks, number: int, least_ns: int
) -> Callable[..., Any]:
    import functools

    torch: Any = sys.modules.get("torch")
    add, now_ns = marks.add, time.monotonic_ns

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if torch is not None and torch.compiler.is_compiling():
            return function(*args, **kwargs)
        start_ns = now_ns()
        try:
            return function(*args, **kwargs)
        finally:
            end_ns = now_ns()
            if end_ns - start_ns >= least_ns:
                add(number, start_ns, end_ns)

    return traced
