"""Runs in a worker before its own code: reports garbage collections and waits for input.

A rank also asks the kernel to end it with its launcher, so that none is left behind.

It needs nothing but the standard library, imports no relkit (the worker may have another one),
does nothing where the hook is not preloaded, and gives way to the worker's own sitecustomize. All
that takes time to import is left alone: this runs at the start of every Python in the job.
"""

from __future__ import annotations

import gc
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PID = os.getpid()
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
_MIN_GC_NS, _MIN_INPUT_NS = 1_000_000, 10_000
_gc_began = [0]
_marks: dict[str, Any] = {}


def _mark(kind: str, start_ns: int, end_ns: int) -> None:
    """Write one into the recorder; the first of its kind says that it is being reported."""
    ctypes = sys.modules.get("ctypes")
    # A collection may come while somebody imports ctypes; to import it here would be too dear.
    ready = ctypes is not None and not getattr(ctypes.__spec__, "_initializing", False)
    # A standby has no rank yet: its first one is still to come.
    if kind not in _marks and ctypes is not None and ready and "RELKIT_STANDBY" not in os.environ:
        mark = getattr(ctypes.PyDLL(None), "relkit_mark_" + kind, None)
        if mark is not None:
            mark.argtypes, mark.restype = (ctypes.c_uint64, ctypes.c_uint64), None
            mark(end_ns, end_ns)
        _marks[kind] = mark
    if start_ns < end_ns and _marks.get(kind) and os.getpid() == _PID:
        _marks[kind](start_ns, end_ns)


def _on_gc(phase: str, _info: object) -> None:
    now_ns = time.monotonic_ns()
    if phase == "start":
        _gc_began[0] = now_ns
    elif now_ns - _gc_began[0] >= _MIN_GC_NS:
        _mark("gc", _gc_began[0], now_ns)
    elif "gc" not in _marks:
        _mark("gc", now_ns, now_ns)


def _watch_loader(module: Any) -> None:  # noqa: ANN401
    iterator = getattr(module, "_BaseDataLoaderIter", None)
    following = getattr(iterator, "__next__", None)
    if iterator is None or following is None:
        return

    def wait(self: object) -> object:
        start_ns = time.monotonic_ns()
        try:
            return following(self)
        finally:
            end_ns = time.monotonic_ns()
            if end_ns - start_ns >= _MIN_INPUT_NS:
                _mark("input", start_ns, end_ns)

    iterator.__next__ = wait


class _Finder:
    """Waits until torch's loader is imported, and is gone then."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name != "torch.utils.data.dataloader":
            return None
        finders: list[Any] = sys.meta_path
        finders.remove(self)
        specs = (finder.find_spec(name, path, target) for finder in finders)
        spec: Any = next((spec for spec in specs if spec is not None), None)
        run = getattr(getattr(spec, "loader", None), "exec_module", None)
        if run is not None:

            def exec_module(module: object) -> None:
                run(module)
                _watch_loader(module)

            spec.loader.exec_module = exec_module
        return spec


def _end_with_launcher(launcher: int) -> None:
    """Have the kernel end this process with its launcher, from here on until it ends.

    A rank that some wrapper has started is not the launcher's child, and is left alone.
    """
    # The one import that takes time; only a rank does it, and torch would do it anyway.
    import ctypes

    if os.getppid() == launcher:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    # It may have ended before that, and its death is not signalled any more.
    try:
        os.kill(launcher, 0)
    except ProcessLookupError:
        os.kill(_PID, _SIGKILL)
    except PermissionError:
        return


def _begin() -> None:
    if "RANK" not in os.environ or "relkit" not in os.environ.get("LD_PRELOAD", ""):
        return
    # What the rank starts inherits this, and is not the rank.
    if os.environ.setdefault("RELKIT_BOOTSTRAP_PID", str(_PID)) == str(_PID):
        launcher = os.environ.get("RELKIT_LAUNCHER_PID", "")
        if launcher.isdecimal():
            _end_with_launcher(int(launcher))
        gc.callbacks.append(_on_gc)
        sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]


def _give_way() -> None:
    here = __file__.rpartition(os.sep)[0]
    sys.path[:] = [entry for entry in sys.path if entry != here]
    mine = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize" or mine is None:
            raise
        sys.modules["sitecustomize"] = mine


if os.environ.get("RELKIT_BOOTSTRAP") != "0":
    _begin()
_give_way()
