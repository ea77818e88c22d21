"""One stack a thread out of two: Python frames spliced into the native ones.

CPython runs Python frames inside its evaluation function, so the native stack has a place for
them. Up to 3.10 every frame has an evaluation of its own; later ones run a frame and those that
it calls directly in one, and Frame.entry tells where the next one begins. Where there are as many
evaluations as such runs of frames, each run goes to its own place; else it cannot be told, and
that thread shows all Python frames together, between the outer and the inner native part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from relkit.stacks.model import Frame, RankDump, Role, ThreadStack

_EVAL = re.compile(r"PyEval_EvalFrame")
_EVAL_LOOP = "_PyEval_EvalFrameDefault"
_INTERPRETER_OBJECT = re.compile(r"(?:^|/)(?:lib)?python\d[\d.]*[a-z]*(?:\.so[\d.]*)?$")
_INTERPRETER_SOURCE = re.compile(
    r"(?:^|/)(?:Python|Objects|Modules|Parser|Programs)/[\w/]+\.[ch]\b"
)
_INTERPRETER_NAME = re.compile(r"_?Py[A-Z]\w*$|_Py_\w+$|pymain_\w+$")
_CALL_GLUE = re.compile(
    r"[Vv]ectorcall|_?PyObject_\w*Call|PyCFunction_Call|cfunction_call|method_call|slot_tp_call"
    r"|type_call|_?PyEval_|partial_call|do_call_core|call_function"
)
# What calls a function written in C on behalf of Python code.
_CALLS_BUILTIN = re.compile(r"cfunction_|method_vectorcall_|_PyEval_EvalFrameDefault")
_MACHINERY = re.compile(r"slot_|gen_|coro_|wrap_|object_|type_|method_|run_")

ROLE_FRAME = "Role"


def role_frame(role: Role) -> Frame:
    """The outermost pseudo-frame of a mixed stack, `Role@main`."""
    return Frame(ROLE_FRAME, role.value)


def pair_threads(dump: RankDump) -> Iterator[tuple[ThreadStack | None, ThreadStack | None]]:
    """The (native, Python) stacks of each thread, matched by the kernel's thread id.

    A Python thread takes the first native stack of its id that no other has taken; id 0 matches
    nothing. Order: all native threads as in the file, then the Python threads left over.
    """
    waiting: dict[int, list[int]] = {}
    for index, thread in enumerate(dump.python):
        if thread.os_thread_id:
            waiting.setdefault(thread.os_thread_id, []).append(index)
    taken: set[int] = set()
    for native in dump.native:
        indices = waiting.get(native.os_thread_id)
        if indices:
            index = indices.pop(0)
            taken.add(index)
            yield native, dump.python[index]
        else:
            yield native, None
    for index, python in enumerate(dump.python):
        if index not in taken:
            yield None, python


def pair_role(native: Role | None, python: Role | None) -> Role:
    """What a thread is for: the native stack's word, else the Python stack's."""
    if native is not None and native is not Role.OTHER:
        return native
    return python or Role.OTHER


def _is_interpreter(frame: Frame) -> bool:
    return bool(
        _INTERPRETER_OBJECT.search(frame.source)
        or _INTERPRETER_SOURCE.search(frame.source)
        or _INTERPRETER_NAME.match(frame.func)
    )


def _evaluations(native: list[Frame]) -> list[int]:
    """Where Python code runs in a native stack (outermost first): the indices of these frames."""
    evaluations = [i for i, frame in enumerate(native) if _EVAL.search(frame.func)]
    # Debuggers also list the inlined wrappers around the loop; the loop itself is what counts.
    loops = [i for i in evaluations if _EVAL_LOOP in native[i].func]
    return loops or evaluations


def _between(native: list[Frame], start: int, end: int) -> list[Frame]:
    """What is worth showing of native[start:end], which has Python code on its inner side."""
    return [
        frame
        for i, frame in enumerate(native[start:end], start)
        if not _is_interpreter(frame) or _is_builtin(native, i)
    ]


def _is_builtin(native: list[Frame], index: int) -> bool:
    """A function of the interpreter that Python code called by name: sorted, functools.reduce."""
    name = native[index].func
    return bool(
        index
        and _CALLS_BUILTIN.match(native[index - 1].func)
        and not _INTERPRETER_NAME.match(name)
        and not _CALL_GLUE.search(name)
        and not _MACHINERY.match(name)
    )


def _runs(python: list[Frame]) -> list[list[Frame]]:
    """Python frames (outermost first) by the evaluation that runs them."""
    runs: list[list[Frame]] = []
    for frame in python:
        if frame.entry or not runs:
            runs.append([])
        runs[-1].append(frame)
    return runs


def _splice(native: list[Frame], python: list[Frame]) -> list[Frame]:
    evaluations = _evaluations(native)
    if not evaluations:
        # An interpreter without symbols: its frames still say where Python begins and ends.
        evaluations = [i for i, f in enumerate(native) if _INTERPRETER_OBJECT.search(f.source)]
        if not evaluations:
            return python + native
        evaluations = [evaluations[0], evaluations[-1]]
    elif len(evaluations) == len(runs := _runs(python)):
        joined: list[Frame] = []
        start = 0
        for place, run in zip(evaluations, runs, strict=True):
            joined += _between(native, start, place)
            joined += run
            start = place + 1
        return joined + [f for f in native[start:] if not _CALL_GLUE.search(f.func)]
    outer = [f for f in native[: evaluations[0]] if not _is_interpreter(f)]
    inner = [f for f in native[evaluations[-1] + 1 :] if not _CALL_GLUE.search(f.func)]
    return outer + python + inner


def join_frames(native: tuple[Frame, ...], python: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """One thread's frames, innermost first like both arguments; interpreter glue left out."""
    if not python:
        return native
    if not native:
        return python
    return tuple(reversed(_splice(list(reversed(native)), list(reversed(python)))))
