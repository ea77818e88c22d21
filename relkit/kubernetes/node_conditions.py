"""What the reports of checks mean for a node: its conditions, and whether it is tainted. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relkit.errors import UsageProblem
from relkit.findings import Status

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
_TAINT = re.compile(
    r"(?P<key>[A-Za-z0-9][A-Za-z0-9./_-]{0,250})(=(?P<value>[A-Za-z0-9._-]{0,63}))?"
    r":(?P<effect>NoSchedule|PreferNoSchedule|NoExecute)"
)
_LONGEST_MESSAGE = 1000


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a node.

    Args:
        kind: its type, as RelkitHostReady.
        status: True where the node is fit, False where it is not, Unknown where nobody could tell.
        reason: a word, made of the worst finding's id.
        message: that finding's sentence.
        is_proof: False says that the node itself is broken, not only what runs on it.
    """

    kind: str
    status: str
    reason: str
    message: str
    is_proof: bool


def condition(kind: str, report: Mapping[str, Any] | None, *, is_proof: bool) -> Condition:
    """The condition that a report leads to.

    Args:
        kind: the condition's type.
        report: a command's JSON document; None: it gave none.
        is_proof: see Condition.
    """
    if report is None:
        return Condition(kind, UNKNOWN, "NoReport", "the check gave no report", is_proof)
    findings = report.get("findings")
    listed = findings if isinstance(findings, list) else []
    by_status = {
        Status.FAIL.value: FALSE,
        Status.OK.value: TRUE,
        # A warning is no reason to keep jobs away.
        Status.WARN.value: TRUE,
    }
    status = by_status.get(str(report.get("status")), UNKNOWN)
    worst = next(
        (
            each
            for each in listed
            if isinstance(each, dict) and each.get("status") == report.get("status")
        ),
        {},
    )
    reason = re.sub(r"[^A-Za-z0-9]+", "_", str(worst.get("id", ""))).strip("_")
    message = str(worst.get("title", ""))[:_LONGEST_MESSAGE]
    if status == TRUE:
        return Condition(kind, status, "Passed", message, is_proof)
    return Condition(kind, status, reason or "NoFinding", message, is_proof)


def as_status(
    conditions: Sequence[Condition], before: Mapping[str, tuple[str, str]], now: str
) -> tuple[list[dict[str, str]], dict[str, tuple[str, str]]]:
    """The conditions as the API server takes them.

    Args:
        conditions: of this look; before: kind -> its status, and since when, of the look before.
        now: the time, as 2026-11-29T08:00:00Z.

    Returns:
        the list, and what `before` is at the next look.
    """
    written, since = [], {}
    for each in conditions:
        status, at = before.get(each.kind, ("", now))
        since[each.kind] = (each.status, at if status == each.status else now)
        written.append(
            {
                "type": each.kind,
                "status": each.status,
                "reason": each.reason,
                "message": each.message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": since[each.kind][1],
            }
        )
    return written, since


def parse_taint(text: str) -> dict[str, str]:
    """KEY=VALUE:EFFECT, as kubectl writes it.

    Raises:
        UsageProblem: it is something else.
    """
    match = _TAINT.fullmatch(text)
    if match is None:
        raise UsageProblem(
            f"--taint {text!r:.80} is not KEY=VALUE:EFFECT",
            next_step="Write --taint relkit.io/bad-node=true:NoSchedule.",
        )
    taint = {"key": match["key"], "effect": match["effect"]}
    return {**taint, "value": match["value"]} if match["value"] else taint


def wants_taint(conditions: Sequence[Condition], failed: frozenset[str]) -> frozenset[str]:
    """Which checks stand against the node now.

    Args:
        conditions: of this look.
        failed: the kinds that stood against it before; one goes only when the same check has
            passed: what could not tell is no proof.
    """
    of_proof = [each for each in conditions if each.is_proof]
    bad = {each.kind for each in of_proof if each.status == FALSE}
    passed = {each.kind for each in of_proof if each.status == TRUE}
    return frozenset((failed - passed) | bad)


def with_taint(
    taints: Sequence[Mapping[str, Any]], taint: Mapping[str, str], *, is_bad: bool
) -> list[dict[str, Any]] | None:
    """A node's taints after this look; None where nothing changes.

    Args:
        taints: of the node; taint: ours; is_bad: whether it should have that.
    """

    def is_ours(each: Mapping[str, Any]) -> bool:
        return (each.get("key"), each.get("effect")) == (taint["key"], taint["effect"])

    others = [dict(each) for each in taints if not is_ours(each)]
    has_it = len(others) < len(taints)
    if has_it == is_bad:
        return None
    return [*others, dict(taint)] if is_bad else others
