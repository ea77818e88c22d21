"""py-spy's JSON dump -> ThreadStack: pure, and strict about what it does not know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relkit.errors import CaptureFailed
from relkit.stacks.model import Frame, ThreadStack
from relkit.text.foreign_json import parse_json


@dataclass(frozen=True, slots=True)
class SpyFrame:
    """One frame of a `--native` dump, before native and Python are told apart.

    Args:
        frame: the frame itself.
        native: it is native code: only `--native` gives a module, the path of the object. The file
            name is the same path, or the source where the object has debugging information.
    """

    frame: Frame
    native: bool


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _frame(plain: dict[str, Any]) -> SpyFrame:
    name, path = _string(plain.get("name")), _string(plain.get("filename"))
    module, line = _string(plain.get("module")), _number(plain.get("line"))
    if module:
        return SpyFrame(Frame(func=name or "??", source=module), native=True)
    source = f"{path}:{line}" if line else path
    # CPython 3.11 marks the first frame of an evaluation itself; 3.12 and later put a frame of
    # their own below it, which py-spy reports as is_shim_entry while is_entry is always false.
    entry = plain.get("is_entry", True) is True or plain.get("is_shim_entry") is True
    return SpyFrame(Frame(func=name or "??", source=source, entry=entry), native=False)


def parse(output: bytes) -> list[tuple[ThreadStack, tuple[SpyFrame, ...]]]:
    """All threads of a dump: the thread without frames, and its frames innermost first.

    Raises:
        CaptureFailed: the output is not py-spy's JSON.
    """
    try:
        document = parse_json(output)
    except ValueError as error:
        raise CaptureFailed("py-spy: its output is not JSON") from error
    return [(thread, frames) for _, thread, frames in threads_of(document)]


def threads_of(document: object) -> list[tuple[int, ThreadStack, tuple[SpyFrame, ...]]]:
    """The same of a document that was read already, each with the id of its process; 0 for none.

    Raises:
        CaptureFailed: it is not py-spy's.
    """
    if not isinstance(document, list):
        raise CaptureFailed("py-spy: its output is not a list of threads")
    threads = []
    for plain in document:
        if not isinstance(plain, dict) or not isinstance(plain.get("frames"), list):
            raise CaptureFailed("py-spy: a thread of its output has no frames")
        thread = ThreadStack(
            os_thread_id=_number(plain.get("os_thread_id")),
            name=_string(plain.get("thread_name")),
            frames=(),
            thread_id=_number(plain.get("thread_id")),
            active=plain.get("active") is True,
            owns_gil=plain.get("owns_gil") is True,
        )
        frames = tuple(_frame(item) for item in plain["frames"] if isinstance(item, dict))
        threads.append((_number(plain.get("pid")), thread, frames))
    return threads
