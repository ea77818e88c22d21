"""Python frames in native stacks: exact where it can be known, in order where it cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from relkit.stacks.mixed import join_frames, pair_threads
from relkit.stacks.model import Frame, RankDump, ThreadStack
from tests.unit.stacks.dump_strategies import dumps

PYTHON = "/usr/bin/python3.11"
EVAL = "_PyEval_EvalFrameDefault"


def native(*funcs: str) -> tuple[Frame, ...]:
    """Native frames given outermost first; "func object" or a function of the interpreter."""
    split = [[*func.split(" ", 1), PYTHON][:2] for func in reversed(funcs)]
    return tuple(Frame(func, source) for func, source in split)


def python(*funcs: str) -> tuple[Frame, ...]:
    return tuple(Frame(func, "a.py:1", "a") for func in reversed(funcs))


def names(frames: tuple[Frame, ...]) -> list[str]:
    return [frame.func for frame in reversed(frames)]


def test_one_evaluation_for_each_python_frame_is_spliced_exactly() -> None:
    stack = native(
        "_start",
        "Py_RunMain",
        EVAL,
        "backward libtorch.so",
        "call_hook libtorch.so",
        "PyObject_Call",
        EVAL,
        "cfunction_call",
        "gloo::wait libgloo.so",
        "futex libc.so.6",
    )
    assert names(join_frames(stack, python("train", "hook"))) == [
        "train",
        "backward",
        "call_hook",
        "hook",
        "gloo::wait",
        "futex",
    ]


def test_one_evaluation_with_several_python_frames() -> None:
    stack = native("__libc_start_main libc.so.6", "pymain_run_python", EVAL, "read libc.so.6")
    assert names(join_frames(stack, python("main", "train", "load"))) == [
        "__libc_start_main",
        "main",
        "train",
        "load",
        "read",
    ]


def called(*funcs: str) -> tuple[Frame, ...]:
    """Python frames of one evaluation: all but the outermost were called by the one before."""
    *inner, outermost = python(*funcs)
    return (*(replace(frame, entry=False) for frame in inner), outermost)


def test_frames_of_one_evaluation_stay_together() -> None:
    stack = native(
        "start libc.so.6",
        EVAL,
        "_PyObject_MakeTpCall",
        "_ctypes_callproc _ctypes.so",
        "closure_fcn _ctypes.so",
        "_PyEval_Vector",
        EVAL,
        "list_sort",
        "PyObject_CallOneArg",
        EVAL,
        "slot_tp_init",
        EVAL,
        "read libc.so.6",
    )
    frames = (
        python("__init__") + called("key", "make") + called("callback") + called("main", "train")
    )
    assert names(join_frames(stack, frames)) == [
        "start",
        "main",
        "train",
        "_ctypes_callproc",
        "closure_fcn",
        "callback",
        "list_sort",
        "key",
        "make",
        "__init__",
        "read",
    ]


def test_runs_that_do_not_match_keep_outer_python_inner() -> None:
    stack = native("start libc.so.6", EVAL, "glue libtorch.so", EVAL, "wait libc.so.6")
    for frames in (called("a", "b"), python("c") + python("b") + called("a"), python("x") * 3):
        assert names(join_frames(stack, frames)) == ["start", *names(frames), "wait"]


@pytest.mark.parametrize("caller", [EVAL, "cfunction_vectorcall_O", "method_vectorcall_NOARGS"])
def test_what_python_code_calls_by_name_is_shown(caller: str) -> None:
    outer = (EVAL,) if caller == EVAL else (EVAL, "PyObject_Vectorcall", caller)
    stack = native(*outer, "builtin_sorted", "helper", "_PyEval_Vector", EVAL, "w libc.so.6")
    assert names(join_frames(stack, python("a", "b"))) == ["a", "builtin_sorted", "b", "w"]


@pytest.mark.parametrize("frames", [python("a", "b", "c"), python("a")])
def test_what_cannot_be_matched_keeps_outer_python_inner(frames: tuple[Frame, ...]) -> None:
    stack = native("start libc.so.6", EVAL, "glue libtorch.so", EVAL, "wait libc.so.6")
    assert names(join_frames(stack, frames)) == ["start", *names(frames), "wait"]


def test_inlined_wrappers_of_the_loop_are_not_counted() -> None:
    stack = native("start libc.so.6", "_PyEval_EvalFrame", EVAL, "c lib.so", EVAL, "w libc.so.6")
    assert names(join_frames(stack, python("a", "b"))) == ["start", "a", "c", "b", "w"]


@pytest.mark.parametrize("name", [f"{EVAL}.lto_priv.0", f"{EVAL}.cold", "PyEval_EvalFrameEx"])
def test_the_loop_under_its_other_names(name: str) -> None:
    stack = native("start libc.so.6", name, "wait libc.so.6")
    assert names(join_frames(stack, python("a"))) == ["start", "a", "wait"]


def test_an_interpreter_without_symbols_is_known_by_its_file() -> None:
    stack = native(
        "start libc.so.6",
        "python3.11+0x12",
        "lib.so+0x3 lib.so",
        "python3.11+0x55",
        "wait libc.so.6",
    )
    assert names(join_frames(stack, python("a", "b"))) == ["start", "a", "b", "wait"]


def test_where_an_interpreter_waits_stays_visible() -> None:
    stack = native(
        "start libc.so.6",
        EVAL,
        "method_vectorcall_VARARGS",
        "lock_PyThread_acquire_lock",
        "PyThread_acquire_lock_timed",
        "sem_wait libc.so.6",
    )
    assert names(join_frames(stack, python("get"))) == [
        "start",
        "get",
        "lock_PyThread_acquire_lock",
        "PyThread_acquire_lock_timed",
        "sem_wait",
    ]


def test_one_side_alone_is_left_as_it_is() -> None:
    stack = native("start", EVAL, "wait libc.so.6")
    assert join_frames(stack, ()) == stack
    assert join_frames((), python("a")) == python("a")
    other = native("start libc.so.6", "wait libc.so.6")
    assert names(join_frames(other, python("a"))) == ["a", "start", "wait"]


def test_threads_meet_by_the_kernels_id() -> None:
    def thread(lwp: int, name: str) -> ThreadStack:
        return ThreadStack(lwp, name, ())

    dump = RankDump(
        0,
        1,
        1,
        "S",
        native=(thread(7, "n7"), thread(7, "again"), thread(0, "n0"), thread(8, "n8")),
        python=(thread(0, "p0"), thread(7, "p7"), thread(9, "p9")),
    )
    pairs = [(n and n.name, p and p.name) for n, p in pair_threads(dump)]
    assert pairs == [
        ("n7", "p7"),
        ("again", None),
        ("n0", None),
        ("n8", None),
        (None, "p0"),
        (None, "p9"),
    ]


@given(dumps())
def test_no_thread_and_no_python_frame_is_lost(dump: RankDump) -> None:
    shown = [
        frame
        for native, python in pair_threads(dump)
        for frame in join_frames(native.frames if native else (), python.frames if python else ())
    ]
    native_threads = [native for native, _ in pair_threads(dump) if native is not None]
    python_threads = [python for _, python in pair_threads(dump) if python is not None]
    assert sorted(map(id, native_threads)) == sorted(map(id, dump.native))
    assert sorted(map(id, python_threads)) == sorted(map(id, dump.python))
    for thread in dump.python:
        for frame in thread.frames:
            assert frame in shown
