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
    UNKNOWN,
    Condition,
    as_status,
    condition,
    wants_taint,
    with_taint,
)
from relkit.live_job.gpus import gpu_words, gpus_here
from relkit.process.bounded_child import run_child
from relkit.text.foreign_json import parse_object

_CHECK_S = 300.0
Log = Callable[[str], None]
# A command of relkit's -> its report; None where it gives none.
Runner = Callable[[Sequence[str]], "dict[str, Any] | None"]
# A GPU that somebody works with, in words; "" for none, or where nothing says so.
InUse = Callable[[], str]
# What a driver takes without any program; a program's context takes some hundred MiB alone.
_IDLE_MIB = 400.0


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


def gpu_in_use() -> str:
    """See InUse. By its memory: the share of time in use is of a moment, and of our own check."""
    used = (gpu for gpu in gpus_here() if (gpu.used_mib or 0.0) > _IDLE_MIB)
    return next(map(gpu_words, used), "")


def look(check: NodeCheck, run: Runner, in_use: InUse = gpu_in_use) -> list[Condition]:
    """Run the checks once.

    Args:
        in_use: see InUse. Nothing is measured beside a job: it would take bandwidth and memory
            from it, and its traffic would make good links look slow.
    """
    # What doctor sees is mostly the pod's: it condemns no node.
    made = [condition("RelkitHostReady", run(["doctor"]), is_proof=False)]
    if check.with_links:
        made.append(_links(run, in_use))
    return made


def _links(run: Runner, in_use: InUse) -> Condition:
    kind, report = "RelkitLinksReady", None
    used = in_use()
    if not used:
        report = run(["linkcheck"])
        # A job may have begun meanwhile.
        used = in_use()
    if used:
        text = f"not measured beside a job: {used}"
        return Condition(kind, UNKNOWN, "GpusInUse", text, is_proof=True)
    return condition(kind, report, is_proof=True)


class Watch:
    """One look after the other, and what is remembered between them.

    Args:
        check: what is asked for.
        server: gets the conditions; None: they are only printed.
        log: writes one line to the terminal; run: see Runner; in_use: see InUse.
    """

    def __init__(
        self,
        check: NodeCheck,
        server: ApiServer | None,
        log: Log,
        run: Runner = run_command,
        in_use: InUse = gpu_in_use,
    ) -> None:
        self._check, self._server, self._log = check, server, log
        self._run, self._in_use = run, in_use
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
        conditions = look(self._check, self._run, self._in_use)
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
