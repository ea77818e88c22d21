"""Which nodes of this job were named before: each launcher tells node 0 what its host knows."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from relkit.history.counting import DAY_S, OFTEN_DAYS, Named, count_named
from relkit.launch.job.exchange import ExchangeBroken, Mailbox
from relkit.launch.job.node_name import is_node_name
from relkit.launch.job.settings import Log
from relkit.log_lines import warning
from relkit.text.foreign_json import parse_object

# How long node 0 waits for what other nodes tell of themselves.
TELL_S = 60.0
_FINDING = re.compile(r"RK-[A-Z]{2,8}-\d{3}")
_MAX_TIMES, _MAX_FINDINGS = 1_000_000, 20
_MAX_NOTE_BYTES = 4096


class NamedBefore:
    """Over the attempts of a job: says each of its nodes once that was named often.

    Args:
        log: writes one line to the terminal.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._met: tuple[Mailbox, str] | None = None
        self._nodes: NamedNodes | None = None
        self._end_s = 0.0
        self._said: set[str] = set()

    @property
    def is_waiting(self) -> bool:
        """Other nodes have not told yet."""
        return self._nodes is not None

    def met(self, mailbox: Mailbox, own: str) -> None:
        """The nodes of an attempt have met; own: this node's name."""
        self._met = mailbox, own

    def look(self, folder: Path, *, is_last: bool) -> None:
        """Tell, ask, and say what is known by now.

        Args:
            folder: of the history; is_last: there is no later look.

        Raises:
            NoHistory: it cannot be read.
        """
        met, self._met = self._met, None
        if met is not None:
            from relkit.history.database import mentions

            now_s = time.time()
            known = count_named(mentions(folder, now_s - OFTEN_DAYS * DAY_S, now_s))
            self._nodes, self._end_s = NamedNodes(*met, known), time.monotonic() + TELL_S
            try:
                self._nodes.tell()
            except ExchangeBroken:
                # Node 0 says nothing of this node then.
                self._nodes = None
        nodes = self._nodes
        if nodes is None:
            return
        nodes.ask()
        if nodes.is_done or is_last or time.monotonic() >= self._end_s:
            self._nodes = None
        for named in nodes.often():
            if named.node not in self._said:
                self._said.add(named.node)
                self._log(warning(_line(named), "RK-HIST-002"))


def _line(named: Named) -> str:
    return f"{named.sentence}; that is evidence, and no verdict: relkit history --node {named.node}"


class NamedNodes:
    """One attempt's exchange; ask() until it is done.

    Args:
        mailbox: of its own, to the other nodes.
        own: this node's name; known: what the history of this host says of any node.
    """

    def __init__(self, mailbox: Mailbox, own: str, known: Sequence[Named]) -> None:
        self._mailbox, self._own = mailbox, own
        self._known: dict[str, Named] = {each.node: each for each in known}
        self._missing = set(range(mailbox.nodes)) - {mailbox.node}
        self._names = {own}
        if mailbox.node:
            self._missing.clear()

    @property
    def is_done(self) -> bool:
        """All nodes have told, or node 0 does not listen to them."""
        return not self._missing

    def tell(self) -> None:
        """Tell node 0 this node's name, and what is known of it here.

        Raises:
            ExchangeBroken: see StoreMailbox.
        """
        if self._mailbox.node:
            note = {"node": self._own, **_plain(self._known.get(self._own))}
            self._mailbox.put(f"node/{self._mailbox.node}", json.dumps(note).encode())

    def ask(self) -> None:
        """See which nodes have told; the store that fails ends it."""
        for node in sorted(self._missing):
            try:
                note = self._mailbox.get(f"node/{node}")
            except ExchangeBroken:
                self._missing.clear()
                return
            if note is not None:
                self._missing.discard(node)
                self._take(note)

    def often(self) -> Iterator[Named]:
        """Those of this job's nodes that were named often; on node 0 only."""
        if self._mailbox.node == 0:
            for name in sorted(self._names & self._known.keys()):
                if self._known[name].is_often:
                    yield self._known[name]

    def _take(self, note: bytes) -> None:
        try:
            plain = parse_object(note[:_MAX_NOTE_BYTES])
        except ValueError:
            return
        name = plain.get("node")
        if not isinstance(name, str) or not is_node_name(name):
            return
        self._names.add(name)
        told, known = _named(name, plain), self._known.get(name)
        if told is not None and (known is None or told.times > known.times):
            self._known[name] = told


def _plain(named: Named | None) -> dict[str, Any]:
    if named is None:
        return {}
    return {"times": named.times, "alone": named.alone, "findings": dict(named.findings)}


def _named(node: str, plain: Mapping[str, Any]) -> Named | None:
    """What another launcher says; anybody may have written it."""
    times, alone = _count(plain.get("times")), _count(plain.get("alone"))
    findings = plain.get("findings")
    if not times or not isinstance(findings, dict):
        return None
    good = {
        name: _count(count)
        for name, count in list(findings.items())[:_MAX_FINDINGS]
        if _FINDING.fullmatch(name) and _count(count)
    }
    return Named(node, times, good, min(alone, times)) if good else None


def _count(value: object) -> int:
    """A count; 0 for what is none."""
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 <= value <= _MAX_TIMES else 0
