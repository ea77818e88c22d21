"""Has every kernel launch of the next steps timed, instead of one in many."""

from __future__ import annotations

from pathlib import Path

from relkit.errors import CaptureFailed
from relkit.hook import layout
from relkit.hook.ask import ask_one_thread
from relkit.hook.capture import ensure_handler
from relkit.hook.model import HookState
from relkit.hook.state_file import open_state_file

STEPS_MAX = 1000


def time_steps(path: Path, state: HookState, steps: int) -> None:
    """Ask the hook in a process to time all launches of so many steps (see docs/platforms.md).

    It begins at the process's next relkit.step(), and costs two device events a launch meanwhile.

    Args:
        path: the process's recorder file; state: what read_state made of it.
        steps: 0 (stop) to 1000.

    Raises:
        ValueError: steps out of range.
        CaptureFailed: the process is gone or takes no requests.
        BadDump: the recorder file has become unreadable.
    """
    if not 0 <= steps <= STEPS_MAX:
        raise ValueError(f"steps must be 0 to {STEPS_MAX}, not {steps}")
    with open_state_file(path) as file:
        number = int(file.header["request_signal"])
    if not 0 < number <= 64:
        raise CaptureFailed(f"the hook in process {state.pid} takes no requests")
    ensure_handler(state, number)
    ask_one_thread(state.pid, number, layout.REQUEST_TIME_STEPS, steps, "the request for times")
