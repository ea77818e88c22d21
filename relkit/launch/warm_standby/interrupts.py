"""Ctrl-C while a standby imports: it ends the process, also where Python would drop it.

It needs nothing but the standard library, and is loaded without relkit.
"""

from __future__ import annotations

import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sys import UnraisableHookArgs


def end_by_interrupt() -> None:
    """End as Python ends by a Ctrl-C that nobody has caught."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)


class dropped_interrupts_end:
    """In the block, a KeyboardInterrupt that Python drops ends the process.

    One that is raised in the callback of a weak reference, or in `__del__`, is only printed
    (sys.unraisablehook); Python's import system has such a callback for each module.
    """

    def __enter__(self) -> None:
        self._before = sys.unraisablehook
        sys.unraisablehook = self._ours = self._look

    def __exit__(self, *_error: object) -> None:
        # An import may have put something else in its place.
        if sys.unraisablehook is self._ours:
            sys.unraisablehook = self._before

    def _look(self, dropped: UnraisableHookArgs) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            end_by_interrupt()
        self._before(dropped)
