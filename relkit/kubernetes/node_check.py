"""The look at a node that runs on each: checks, conditions, and a taint where that is asked for."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relkit.errors import EXIT_OK, EXIT_PROBLEM, EXIT_UNKNOWN
from relkit.kubernetes.api_server import ApiRefused, ApiServer
from relkit.kubernetes.node_conditions import (
    FALSE,
    TRUE,
    Condition,
    as_status,
    condition,
    wants_taint,
    with_taint,
)
from relkit.process.bounded_child import run_child
from relkit.text.foreign_json import parse_object

_CHECK_S = 300.0
Log = Callable[[str], None]
# A command of relkit's -> its report; None where it gives none.
Runner = Callable[[Sequence[str]], "dict[str, Any] | None"]


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """What is asked for.

    Args:
        node: its name in the cluster.
        with_links: run linkcheck too.
        taint: set where a check proves that the node is broken; None: never.
        every_s: look so often; None: once.
    """

    node: str
    with_links: bool
    taint: Mapping[str, str] | None
    every_s: float | None


def run_command(words: Sequence[str]) -> dict[str, Any] | None:
    """Run a check in a process of its own, which may hang on a driver, with a deadline."""
    try:
        done = run_child([sys.executable, "-m", "relkit", *words, "--json"], _CHECK_S)
        return parse_object(done.stdout)
    except (OSError, ValueError):
        return None


def look(check: NodeCheck, run: Runner) -> list[Condition]:
    """Run the checks once."""
    # What doctor sees is mostly the pod's: it condemns no node.
    made = [condition("RelkitHostReady", run(["doctor"]), is_proof=False)]
    if check.with_links:
        made.append(condition("RelkitLinksReady", run(["linkcheck"]), is_proof=True))
    return made


class Watch:
    """One look after the other, and what is remembered between them.

    Args:
        check: what is asked for.
        server: gets the conditions; None: they are only printed.
        log: writes one line to the terminal; run: see Runner.
    """

    def __init__(
        self, check: NodeCheck, server: ApiServer | None, log: Log, run: Runner = run_command
    ) -> None:
        self._check, self._server, self._log, self._run = check, server, log, run
        self._since: dict[str, tuple[str, str]] = {}
        self._failed: frozenset[str] | None = None
        self._said: tuple[str, ...] = ()

    def look(self, now: str) -> int:
        """Look once, and publish it.

        Args:
            now: the time, as 2026-11-29T08:00:00Z.

        Returns:
            the exit code of this look alone.
        """
        conditions = look(self._check, self._run)
        written, since = as_status(conditions, self._since, now)
        lines = tuple(f"{c.kind}={c.status} ({c.reason}): {c.message}" for c in conditions)
        if lines != self._said:
            self._said = lines
            for line in lines:
                self._log(line)
        if self._server is not None:
            try:
                self._server.set_conditions(self._check.node, written)
                self._since = since
                self._taint(self._server, conditions)
            except ApiRefused as error:
                # The next look tries again.
                self._log(f"not published: {error}")
                return EXIT_UNKNOWN
        statuses = [each.status for each in conditions]
        if FALSE in statuses:
            return EXIT_PROBLEM
        return EXIT_OK if set(statuses) == {TRUE} else EXIT_UNKNOWN

    def _taint(self, server: ApiServer, conditions: Sequence[Condition]) -> None:
        taint = self._check.taint
        if taint is None:
            return
        taints, version = server.taints(self._check.node)
        if self._failed is None:
            # A pod that comes anew finds what the one before it has set.
            is_set = with_taint(taints, taint, is_bad=True) is None
            kinds = frozenset(each.kind for each in conditions if each.is_proof)
            self._failed = kinds if is_set else frozenset()
        failed = wants_taint(conditions, self._failed)
        changed = with_taint(taints, taint, is_bad=bool(failed))
        if changed is not None:
            server.set_taints(self._check.node, changed, version)
            self._log(f"taint {taint['key']} is {'set' if failed else 'taken off'}")
        self._failed = failed


def check_node(check: NodeCheck, server: ApiServer | None, log: Log) -> int:
    """Look once, or until a signal asks for the end.

    Returns:
        the exit code: of the look; 0 after SIGTERM.
    """
    watch = Watch(check, server, log)
    if check.every_s is None:
        return watch.look(_now())
    ends = threading.Event()
    # As process 1 of a container, a process without a handler gets no SIGTERM at all.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ends.set())
    while not ends.is_set():
        watch.look(_now())
        ends.wait(check.every_s)
    return EXIT_OK


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
