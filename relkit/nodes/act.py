"""Does to nodes what the rules allow, and notes it in the history; a dry run only says it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from relkit.findings import Finding, Status
from relkit.history.database import read, write
from relkit.history.model import Event, What
from relkit.hosts import fold
from relkit.nodes.model import Engine, reason_text
from relkit.nodes.rules import (
    DAY_S,
    check_drain,
    check_undrain,
    most_a_day,
    taken_out_today,
    to_undo,
)

_HISTORY_S = 400 * DAY_S


class NodeActions:
    """Drains, and their ends, of one cluster.

    Args:
        engine: the cluster.
        folder: of the history.
        is_real: act; else only say what would be done.
        now_s: Unix time; now where left out.
    """

    def __init__(
        self, engine: Engine, folder: Path, *, is_real: bool, now_s: float | None = None
    ) -> None:
        self._engine, self._folder, self._is_real = engine, folder, is_real
        self._now_s = time.time() if now_s is None else now_s

    def drain(self, nodes: Sequence[str], finding: str, title: str) -> Finding:
        """Take nodes out.

        Args:
            nodes: names; finding: id of what is wrong with them; title: in words.

        Raises:
            Refused: see check_drain.
            NoHistory: it could not be noted; nothing was done.
        """
        states = self._engine.nodes()
        today = taken_out_today(states, self._events(DAY_S), self._now_s)
        check_drain(states, nodes, today)
        reason = reason_text(finding, title)
        self._note(What.DRAIN, nodes, reason, finding)
        for node in nodes if self._is_real else ():
            self._engine.take_out(node, reason)
        left = most_a_day(len(states)) - len(set(today) | set(nodes))
        return self._said("drain", nodes, f"{reason}; {left} more may be drained today")

    def undrain(self, nodes: Sequence[str]) -> Finding:
        """Put nodes back that have passed their test.

        Raises:
            Refused: see check_undrain. NoHistory: it could not be noted; nothing was done.
        """
        states = self._engine.nodes()
        check_undrain(states, nodes, self._events(_HISTORY_S))
        return self._back(What.UNDRAIN, nodes, "each has passed the test that it had failed")

    def undo(self) -> Finding:
        """Put back what was last taken out from this host, without a test: that was a mistake.

        Raises:
            Refused: there is nothing to undo. NoHistory: it could not be noted.
        """
        nodes = to_undo(self._engine.nodes(), self._events(_HISTORY_S))
        return self._back(What.UNDO, nodes, "the last drain from this host is undone")

    def _back(self, what: What, nodes: Sequence[str], text: str) -> Finding:
        self._note(what, nodes, text, "")
        for node in nodes if self._is_real else ():
            self._engine.put_back(node)
        return self._said(what.value, nodes, text)

    def _events(self, span_s: float) -> list[Event]:
        return read(self._folder, self._now_s - span_s)

    def _note(self, what: What, nodes: Sequence[str], text: str, finding: str) -> None:
        """Before it is done: what stands nowhere cannot be undone."""
        if not self._is_real:
            return
        event = Event(
            self._now_s, what, run=f"nodes:{os.getpid()}", host=os.uname().nodename,
            text=f"{self._engine.name}: {text}", finding=finding, nodes=tuple(nodes),
        )  # fmt: skip
        write(self._folder, [event], self._now_s)

    def _said(self, verb: str, nodes: Sequence[str], why: str) -> Finding:
        names = fold(nodes)
        if self._is_real:
            return Finding(
                "RK-NODE-002", Status.OK, f"{verb}: {names}", nodes=names, reasons=(why,)
            )
        return Finding(
            "RK-NODE-001",
            Status.OK,
            f"dry run: {verb} {names} would be done",
            nodes=names,
            reasons=(why,),
            advice="Add --yes to do it.",
        )
