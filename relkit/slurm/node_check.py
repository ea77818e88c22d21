"""What Slurm runs on a node before and after jobs and now and then: checks, a drain, its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from relkit.errors import EXIT_OK, EXIT_PROBLEM
from relkit.findings import Status
from relkit.history.findings_of_nodes import speaks_of_nodes
from relkit.nodes.model import NodeState, reason_text
from relkit.nodes.rules import family_of, most_a_day, taken_out_today
from relkit.process.bounded_child import run_child
from relkit.text.foreign_json import parse_object

PROLOG, EPILOG, HEALTH = "prolog", "epilog", "health"
# The command whose findings begin so.
_FAMILIES = {"linkcheck": "LNK", "doctor": "DOC"}
# What these find wrong is the host's; doctor sees the software that a job brings as well.
_OF_NODES = ("LNK",)
Log = Callable[[str], None]
# A command of relkit's -> its report; None where it gives none.
Runner = Callable[[str], "dict[str, Any] | None"]


class Cluster(Protocol):
    """What is needed of relkit.nodes.slurm_engine.SlurmEngine."""

    def nodes(self) -> tuple[NodeState, ...]:
        """All nodes."""

    def take_out(self, node: str, reason: str) -> None:
        """Drain one."""

    def put_back(self, node: str) -> None:
        """Resume one."""


@dataclass(frozen=True, slots=True)
class SlurmCheck:
    """What is asked for.

    Args:
        when: PROLOG, EPILOG or HEALTH.
        node: its name in Slurm.
        checks: commands of relkit: "linkcheck", "doctor".
        is_real: drain and resume; else only say so.
    """

    when: str
    node: str
    checks: tuple[str, ...]
    is_real: bool


def runner(words: Sequence[str], limit_s: float) -> Runner:
    """Runs checks in processes of their own, all of them within one limit.

    Args:
        words: how relkit is called; empty: as this one is.
        limit_s: for all checks together, s.
    """
    until_s = time.monotonic() + limit_s
    begin = list(words) or [sys.executable, "-m", "relkit"]

    def run(command: str) -> dict[str, Any] | None:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            return None
        try:
            return parse_object(run_child([*begin, command, "--json"], left_s).stdout)
        except (OSError, ValueError):
            return None

    return run


def check_node(check: SlurmCheck, cluster: Cluster, run: Runner, in_use: str, log: Log) -> int:
    """Look at this node once, and act on what is proven.

    Args:
        check: what is asked for; cluster: Slurm.
        run: see Runner.
        in_use: a device that a job works with, in words: nothing is measured beside it; "".
        log: writes one line.

    Returns:
        1 where a job must not begin here (prolog only, and only for what is wrong with the node);
        else 0: Slurm drains a node by itself where its prolog or epilog fails.
    """
    if in_use:
        log(f"not measured beside a job: {in_use}")
        return EXIT_OK
    states = cluster.nodes()
    own = next((state for state in states if state.name == check.node), None)
    if own is None:
        log(f"Slurm knows no node {check.node}: nothing is done")
        return EXIT_OK
    if own.is_out:
        if check.when == HEALTH and own.finding:
            _look_again(check, own, cluster, run, log)
        return EXIT_OK
    bad = _node_problem(check, run, log)
    if bad is None:
        return EXIT_OK
    return _drain(check, bad, states, cluster, log)


def _node_problem(check: SlurmCheck, run: Runner, log: Log) -> Mapping[str, Any] | None:
    """The first finding that proves the node broken; what is a user's to mend is only said."""
    for command in check.checks:
        report = run(command)
        if report is None:
            log(f"{command} gave no report in time: nothing is known")
            continue
        for finding in _failed(report):
            if is_node_problem(finding):
                return finding
            log(f"user_problem {_words(finding)}")
    return None


def is_node_problem(finding: Mapping[str, Any]) -> bool:
    """A fault of the host, whatever runs there; what a job brings with it is none."""
    if finding.get("status") != Status.FAIL.value:
        return False
    return family_of(str(finding.get("id", ""))) in _OF_NODES or speaks_of_nodes(finding)


def _drain(
    check: SlurmCheck,
    bad: Mapping[str, Any],
    states: Sequence[NodeState],
    cluster: Cluster,
    log: Log,
) -> int:
    today = taken_out_today(states, (), time.time())
    if len(today | {check.node}) > most_a_day(len(states)):
        log(f"not drained, as {len(today)} of {len(states)} nodes were within a day: {_words(bad)}")
        return EXIT_OK
    log(f"node_problem {_words(bad)}{'' if check.is_real else ' (dry run: not drained)'}")
    if not check.is_real:
        return EXIT_OK
    cluster.take_out(
        check.node, reason_text(str(bad["id"]), f"node_problem {bad.get('title', '')}")
    )
    return EXIT_PROBLEM if check.when == PROLOG else EXIT_OK


def _look_again(check: SlurmCheck, own: NodeState, cluster: Cluster, run: Runner, log: Log) -> None:
    """Resume a node that passes the check for which it was drained, and only that."""
    family = family_of(own.finding)
    command = next((name for name in check.checks if _FAMILIES.get(name) == family), "")
    if not command:
        return
    report = run(command)
    # Without a report, or where it could not tell, nothing has passed.
    if report is None or report.get("status") not in (Status.OK.value, Status.WARN.value):
        log(f"stays drained for {own.finding}: {command} does not pass")
        return
    log(f"{command} passes: resumed, was drained for {own.finding}")
    if check.is_real:
        cluster.put_back(check.node)


def _failed(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    plain = report.get("findings")
    findings = plain if isinstance(plain, list) else []
    return [f for f in findings if isinstance(f, Mapping) and f.get("status") == Status.FAIL.value]


def _words(finding: Mapping[str, Any]) -> str:
    return f"{finding.get('id', '')}: {finding.get('title', '')}"
