"""Notes by which nodes whose secrets differ learn of each other, in a store open to anybody."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from relkit.launch.job.node_name import is_node_name
from relkit.launch.job.session_key import SecretMismatch
from relkit.launch.job.settings import Log
from relkit.log_lines import warning

# torch asks for the state ten times a second; the store has other things to do.
_LOOK_S = 2.0
_MAX_LINES = 8
_MAX_DIGITS = 9
# Which secret a node has that cannot join, as the waiting nodes put it.
HAS = {"another": "another secret than", "none": "no secret, unlike", "one": "a secret, unlike"}


class MismatchNotes:
    """Notes by which the nodes of a rendezvous and those that cannot join it learn of each other.

    Anybody can write them, so nothing is done about them but to log them.

        <prefix>/holder       the node that wrote the state, with which the others have to agree
        <prefix>/count        how many nodes could not join
        <prefix>/<n>          the n-th of them, and which secret it has

    Args:
        store: of the rendezvous; run_id: of the job; log: writes one line to the terminal.
        node: this node's name.
    """

    def __init__(self, store: Any, run_id: str, log: Log, node: str) -> None:  # noqa: ANN401
        self.node = node
        self._store, self._prefix, self._log = store, f"relkit/secret-mismatch/{run_id}", log
        self._next: int | None = None
        self._lines_left = _MAX_LINES
        self._over = store is None
        self._has_signed = store is None
        self._next_look_s = 0.0

    def sign(self) -> None:
        """This node has written the state."""
        if not self._has_signed:
            self._has_signed = True
            with contextlib.suppress(RuntimeError, OSError):
                self._store.set(f"{self._prefix}/holder", self.node)

    def holder(self) -> str:
        """The node that wrote the state; "" where that is not known."""
        with contextlib.suppress(RuntimeError, OSError):
            if self._store is not None and self._store.check([f"{self._prefix}/holder"]):
                return _named(self._store.get(f"{self._prefix}/holder"))
        return ""

    def leave(self, has: str) -> None:
        """This node cannot join; only the first call leaves a note, as torch tries several times.

        Args:
            has: which secret it has, one of HAS.
        """
        if not self._over:
            self._over = True
            with contextlib.suppress(RuntimeError, OSError):
                number = self._store.add(f"{self._prefix}/count", 1)
                self._store.set(f"{self._prefix}/{number}", f"{has} {self.node}")

    def look(self) -> None:
        """Log which nodes could not join since this one came."""
        now_s = time.monotonic()
        if self._over or now_s < self._next_look_s:
            return
        self._next_look_s = now_s + _LOOK_S
        with contextlib.suppress(RuntimeError, OSError):
            if self._next is None:
                # Earlier notes do not concern this node; its own failed attempt may be among them.
                self._next = self._count() + 1
            # Somebody else may write them faster than they are read.
            for _ in range(self._lines_left):
                if not self._store.check([f"{self._prefix}/{self._next}"]):
                    return
                self._report(self._store.get(f"{self._prefix}/{self._next}"))
                self._next += 1

    def _count(self) -> int:
        """How many notes there are; not by add(), which ends the connection over no number."""
        if not self._store.check([f"{self._prefix}/count"]):
            return 0
        try:
            return int(self._store.get(f"{self._prefix}/count")[:_MAX_DIGITS])
        except ValueError:
            return 0

    def _report(self, note: bytes) -> None:
        has, _, name = note.partition(b" ")
        what = HAS.get(has.decode("ascii", "replace"))
        if what is not None:
            self._lines_left -= 1
            line = (
                f"node {_named(name) or '?'} could not join the job: it has {what} this node"
                f" ({self.node}). {SecretMismatch.next_step}"
            )
            self._log(warning(line))


def _named(note: bytes) -> str:
    """The node's name in a note; "" where it holds something else, which is not to be shown."""
    name = note.decode("ascii", "replace")
    return name if is_node_name(name) else ""
