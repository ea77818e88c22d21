"""Which findings say something of a node, and a report as events of the history; pure."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relkit.findings import Status
from relkit.history.model import Event, What

# What a program does wrong on whichever node it runs is not among them: another collective than
# its group's, an exception, a stop by a debugger. docs/history.md has the same list.
OF_NODES = frozenset(
    (
        "RK-HANG-001", "RK-HANG-002", "RK-HANG-004", "RK-HANG-007", "RK-HANG-008", "RK-HANG-012",
        "RK-DEATH-002", "RK-DEATH-003", "RK-NET-001", "RK-NET-002", "RK-NET-014", "RK-NET-022",
        "RK-STRAG-001", "RK-STRAG-002", "RK-STRAG-003", "RK-STRAG-004", "RK-STRAG-011",
    )
)  # fmt: skip
_DIED = "RK-HANG-002"
_BAD = (Status.FAIL.value, Status.WARN.value)
_WELL = (Status.OK.value, Status.SKIP.value)
_SAVES = ("ttp", "flash")
# Only in brackets a hyphen between numbers is a span: a host may be called ip-10-250-3-4.
_BRACKETS = re.compile(r"\[([^\]]*)\]")
_SPAN = re.compile(r"(\d{1,20})-(\d{1,20})")
_MAX_FINDINGS = 64
_MAX_TIME_S = 1e11
_MAX_NODES = 1024
_MAX_FOLDED = 100_000


def events_of(
    report: Mapping[str, Any], *, job: str = "", run: str = "", host: str = "", of_nodes: int = 0
) -> tuple[Event, ...]:
    """What a report of a job, or of a network check, adds to the history.

    Args:
        report: as JSON; what is not as it should be in it is left out.
        job, run, host: of Event; of_nodes: how many the job has.
    """
    command = str(report.get("schema", "")).removeprefix("relkit.").partition("/")[0]
    known, step = report.get("nodes"), report.get("step")
    is_check = command == "netcheck"
    if is_check and isinstance(known, list | dict):
        of_nodes = len(known)
    plain = report.get("findings")
    findings = [f for f in plain if isinstance(f, dict)] if isinstance(plain, list | tuple) else []
    base = Event(_ended_s(report), What.VERDICT, job, run, host, of_nodes=of_nodes)
    if command in _SAVES:
        saved = step if isinstance(step, int) and 0 <= step < 1 << 60 else -1
        base = replace(base, what=What.SAVE, step=saved)
    events = [_of_finding(base, finding) for finding in findings[:_MAX_FINDINGS]]
    if base.what is not What.SAVE:
        events = [each for each in events if each.status not in _WELL]
    if is_check:
        faults = sum(each.status == Status.FAIL for each in events)
        text = f"{of_nodes} nodes, {faults} finding{'' if faults == 1 else 's'} of a fault"
        status = _text(report, "status")
        events.insert(0, replace(base, what=What.NETCHECK, text=text, status=status))
    return tuple(events)


def _of_finding(base: Event, finding: Mapping[str, Any]) -> Event:
    return replace(
        base,
        text=_text(finding, "title"),
        finding=_text(finding, "id"),
        status=_text(finding, "status"),
        ranks=_text(finding, "ranks"),
        nodes=nodes_in(_text(finding, "nodes")),
        speaks_of_nodes=speaks_of_nodes(finding),
    )


def speaks_of_nodes(finding: Mapping[str, Any]) -> bool:
    """Whether a finding, as JSON, is evidence about the nodes it names."""
    name, status = _text(finding, "id"), _text(finding, "status")
    if name not in OF_NODES or status not in _BAD:
        return False
    # A job that went on by itself was slow at most.
    if status != Status.FAIL.value and name.startswith("RK-HANG-"):
        return False
    if name == _DIED:
        # An exit code of its own is the program's word; a signal's number is negative.
        evidence = finding.get("evidence")
        items = evidence if isinstance(evidence, list | tuple) else []
        codes = [
            item.get("value")
            for item in items
            if isinstance(item, dict) and item.get("name") == "exit code"
        ]
        return not any(isinstance(code, int) and code > 0 for code in codes)
    return True


def _ended_s(report: Mapping[str, Any]) -> float:
    meta = report.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    ended_s = 0.0
    for each in (meta.get("started"), meta.get("duration_s")):
        # Each by itself: a whole number may be too large for a sum with one that is none.
        if not isinstance(each, int | float) or not 0.0 <= each < _MAX_TIME_S:
            return time.time()
        ended_s += each
    return ended_s


def _text(plain: Mapping[str, Any], name: str) -> str:
    value = plain.get(name)
    return value if isinstance(value, str) else ""


def nodes_in(folded: str) -> tuple[str, ...]:
    """The names in a folded list; none where it is none, or far too long."""
    # Only here: a job without an incident names no node.
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    if not folded or len(folded) > _MAX_FOLDED or _spanned(folded) > _MAX_NODES:
        return ()
    try:
        nodes = NodeSet(folded, resolver=RESOLVER_NOGROUP)
    except (NodeSetException, ValueError):
        return tuple(folded.split(","))[:_MAX_NODES]
    return tuple(nodes) if len(nodes) <= _MAX_NODES else ()


def _spanned(folded: str) -> int:
    """How many numbers the spans of a folded list have; NodeSet keeps each by itself."""
    spans = (span for inside in _BRACKETS.findall(folded) for span in _SPAN.findall(inside))
    return sum(max(0, int(end) - int(begin)) for begin, end in spans)
