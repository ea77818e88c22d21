"""Native stacks of all threads by pystack, the last resort for processes without the hook."""

from __future__ import annotations

import re
from collections.abc import Iterator

from relkit.errors import CaptureFailed
from relkit.process.bounded_child import find_tool
from relkit.stacks.demangle import strip_arguments
from relkit.stacks.engines.base import EngineResult, Target
from relkit.stacks.engines.pyspy_native import EVAL_FRAME, place_interpreter
from relkit.stacks.engines.tracing import run_guarded
from relkit.stacks.model import Frame, ThreadStack

_THREAD = re.compile(r"^Traceback for thread (\d+) \((.*?)\)")
_NATIVE = re.compile(r'^ {4}\(C\) File "(?P<file>.*)", line \d+, in (?P<func>.*) \((?P<lib>.*?)\)$')
_PYTHON = re.compile(r'^ {4}\(Python\) File "')
_INLINED = " (inlined)"


def _finished(os_thread_id: int, name: str, outermost_first: list[Frame]) -> ThreadStack:
    return ThreadStack(os_thread_id, name, place_interpreter(outermost_first[::-1]))


def parse_text(text: str) -> Iterator[ThreadStack]:
    """Threads of `pystack remote --native-all`: one frame stands for each run of Python frames.

    Inlined frames are left out: no other engine sees them, and stacks must merge.
    """
    current: tuple[int, str] | None = None
    frames: list[Frame] = []
    in_python = False
    for line in text.splitlines():
        header = _THREAD.match(line)
        if header:
            if current:
                yield _finished(*current, frames)
            current, frames, in_python = (int(header[1]), header[2]), [], False
            continue
        native = _NATIVE.match(line)
        if native:
            in_python = False
            if not native["func"].endswith(_INLINED):
                func = native["func"].partition("@")[0] or native["func"]
                frames.append(Frame(strip_arguments(func), native["lib"]))
        elif _PYTHON.match(line) and not in_python:
            in_python = True
            frames.append(Frame(EVAL_FRAME, ""))
    if current:
        yield _finished(*current, frames)


class PystackEngine:
    """`pystack remote --native-all`: sees every thread, but attaches in the way that can leave
    a process stopped when it is killed; the guard undoes that."""

    name = "pystack"

    def native(self, target: Target, timeout_s: float) -> EngineResult:
        """Native stacks of all threads.

        Args:
            target: the process; it stands still while pystack looks.
            timeout_s: when to give up, s.

        Raises:
            CaptureFailed: it must not or could not look; the message says why.
        """
        path = find_tool("pystack")
        if path is None:
            raise CaptureFailed("pystack is not installed", next_step="pip install pystack")
        argv = [path, "--no-color", "remote", "--native-all", str(target.pid)]
        result = run_guarded(self.name, target.pid, argv, timeout_s)
        threads = tuple(parse_text(result.stdout.decode("utf-8", "replace")))
        if not threads:
            raise CaptureFailed("pystack: no thread in its output")
        return EngineResult(self.name, threads)
