"""Reads a .pt file as plain data: tensors, numbers, text and containers of them, never code."""

from __future__ import annotations

import argparse
import codecs
import os
import pickle
import re
import struct
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import torch

from relkit.checkpoint import plain_arrays
from relkit.errors import BadInputFile
from relkit.files.input_file import require_regular

# What torch and the unpickler raise for bytes that are no checkpoint; there is no common base.
_UNREADABLE = (
    pickle.UnpicklingError,
    RuntimeError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    MemoryError,
    struct.error,
)
# Of each process: a forked child may lack the thread that has its parent's.
_turns: dict[int, threading.Lock] = {}
# Of one file's objects; each costs another look at it.
_MAX_CLASSES = 32
_NEXT_STEP = "Resume from another iteration: `relkit ckpt verify` says which are whole."


def read_plain(path: Path, *, arrays: bool = False, objects_of: Sequence[str] = ()) -> Any:  # noqa: ANN401
    """The content of a .pt file; large tensors are mapped, not read.

    argparse.Namespace is let through, because Megatron keeps its arguments in one: it can hold
    values but not run anything.

    Args:
        path: of the file.
        arrays: let numpy's arrays and numbers through too.
        objects_of: how the names of classes begin whose objects become `Unmade`: nothing of them
            is imported or called (Megatron's arguments hold members of enums).

    Raises:
        BadInputFile: missing, damaged, or it holds something else than plain data, which is named.
    """
    try:
        require_regular(path)
    except OSError as error:
        reason = error.strerror or error
        raise BadInputFile(f"cannot read {path}: {reason}", next_step=_NEXT_STEP) from error
    let_through: list[Any] = []
    while True:
        try:
            content = _load(path, path, mmap=True, arrays=arrays, more=let_through)
            break
        except _Refused as refused:
            if not refused.named.startswith(tuple(objects_of)) or len(let_through) == _MAX_CLASSES:
                raise
            let_through.append(_named(partial(Unmade, refused.named), refused.named))
    if not isinstance(content, (dict, list)):
        raise BadInputFile(
            f"{path} holds a {type(content).__name__}, not a checkpoint", next_step=_NEXT_STEP
        )
    return content


def read_plain_stream(stream: IO[bytes], path: Path) -> Any:  # noqa: ANN401
    """The value that torch.save has written into a part of a file, arrays included.

    Args:
        stream: of that part; path: of the file, for errors.

    Raises:
        BadInputFile: as `read_plain`.
    """
    return _load(stream, path, mmap=False, arrays=True)


class _Refused(BadInputFile):
    """A pickle that names something that is not let through: `named`."""

    def __init__(self, message: str, named: str, *, next_step: str) -> None:
        super().__init__(message, next_step=next_step)
        self.named = named


class Unmade:
    """Stands for an object that was not made.

    Args:
        of: its class; arguments: what the class would have been called with.
    """

    def __init__(self, of: str, *arguments: object) -> None:
        self.of, self.arguments = of, arguments

    def __repr__(self) -> str:
        return f"{self.of}{self.arguments}"


def _load(
    source: Path | IO[bytes], path: Path, *, mmap: bool, arrays: bool, more: Sequence[Any] = ()
) -> Any:  # noqa: ANN401
    try:
        # Bytes are pickled as a call of encode, which torch lets through from 2.5 on.
        bytes_of = [codecs.encode, _named(_no_bytes, "builtins.bytes")]
        let_through = [argparse.Namespace, *bytes_of, *more]
        let_through += _numpy_names() if arrays else []
        with _allowed(let_through), warnings.catch_warnings():
            # Of an unusual pickle protocol, torch asks whoever reads the file to file an issue.
            warnings.simplefilter("ignore", UserWarning)
            content = torch.load(source, map_location="cpu", weights_only=True, mmap=mmap)
        return plain_arrays.with_arrays(content) if arrays else content
    except OSError as error:
        reason = error.strerror or error
        raise BadInputFile(f"cannot read {path}: {reason}", next_step=_NEXT_STEP) from error
    except _UNREADABLE as error:
        raise _refused(path, error) from error


@contextmanager
def _allowed(let_through: list[Any]) -> Iterator[None]:
    """As torch.serialization.safe_globals, which torch 2.4 has not; one thread after the other.

    torch has one list for the process: what another thread loads meanwhile by other means than this
    module's sees this one's. What it adds to the list stays.
    """
    with _turns.setdefault(os.getpid(), threading.Lock()):
        before = torch.serialization.get_safe_globals()
        # numpy's own functions, which Megatron lets through, would come before their stand-ins.
        numpys = [each for each in before if _path(each).startswith("numpy.")]
        added = [each for each in let_through if each not in before]
        _replace(numpys, added)
        try:
            yield
        finally:
            _replace(added, numpys)


def _replace(old: list[Any], new: list[Any]) -> None:
    kept = [each for each in torch.serialization.get_safe_globals() if each not in old]
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals([*kept, *new])


def _path(let_through: Any) -> str:  # noqa: ANN401
    """The name by which a pickle asks for it."""
    if isinstance(let_through, tuple):
        return str(let_through[1])
    return f"{let_through.__module__}.{let_through.__qualname__}"


def _named(function: Callable[..., Any], path: str) -> Callable[..., Any]:
    """The same under another name: that it has one of its own is all that torch 2.4 and 2.5 see."""

    def renamed(*arguments: Any) -> Any:  # noqa: ANN401
        return function(*arguments)

    renamed.__module__, _, name = path.rpartition(".")
    renamed.__name__ = renamed.__qualname__ = name
    return renamed


def _no_bytes() -> bytes:
    """What the pickle of an empty `bytes` calls. `bytes` itself would make as many as it says."""
    return b""


def _numpy_names() -> list[Any]:
    """Stand-ins for what pickles of arrays and numbers name; numpy 2 has moved two of them."""
    makers: dict[str, Callable[..., Any]] = {
        "_reconstruct": plain_arrays.PlainArray,
        "scalar": plain_arrays.number,
    }
    moved = [
        _named(maker, f"numpy.{core}.multiarray.{name}")
        for name, maker in makers.items()
        for core in ("core", "_core")
    ]
    classes = [
        _named(plain_arrays.array_class, "numpy.ndarray"),
        _named(plain_arrays.PlainDtype, "numpy.dtype"),
    ]
    return [plain_arrays.PlainArray, plain_arrays.PlainDtype, *moved, *classes]


def _refused(path: Path, error: Exception) -> BadInputFile:
    text = str(error).strip()
    if named := re.search(r"GLOBAL ([\w.]+)", text):
        return _Refused(
            f"{path} is refused: it would call or make {named.group(1)}, and a checkpoint is plain"
            " data",
            named.group(1),
            next_step="Do not load it by other means unless you trust who wrote it.",
        )
    # torch explains at length how to go on without the protection; the cause is one line of it.
    cause = re.search(r"WeightsUnpickler error:\s*(.*)", text)
    reason = cause.group(1) if cause else (text.splitlines() or [type(error).__name__])[0]
    return BadInputFile(
        f"{path} is not a checkpoint, or is damaged: {reason[:200]}", next_step=_NEXT_STEP
    )
