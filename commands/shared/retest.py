"""The test of one node after a repair, and its result in the history."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace

from relkit.commands.shared.netcheck_run import measure
from relkit.findings import Report
from relkit.history.database import write
from relkit.history.model import Event, What
from relkit.history.place import NoHistory, history_folder
from relkit.log_lines import say
from relkit.netcheck.measure.options import CheckOptions
from relkit.netcheck.model import Thresholds
from relkit.netcheck.report.report import net_report
from relkit.netcheck.report.retest import retest_finding
from relkit.netcheck.solve.judge import judge


def retest(
    fleet: Mapping[str, str | int | float],
    node: str,
    probe: str,
    options: CheckOptions,
    thresholds: Thresholds,
    *,
    keeps: bool = True,
) -> Report:
    """Measure a node with up to five others; whether it passes is kept in the history.

    Args:
        fleet: values of fleet_options; its nodes are those to choose partners from.
        node: its name there.
        probe, options, thresholds: as for any check.
        keeps: write the result to the history, for `relkit nodes undrain`.
    """
    started = time.time()
    result = measure(fleet, "full", None, probe, options, thresholds, only=node)
    verdict = judge(result, thresholds)
    report = net_report(
        result, verdict, thresholds,
        argv=sys.argv, started=started, duration_s=time.time() - started,
    )  # fmt: skip
    passed = retest_finding(result, verdict, node)
    if keeps:
        event = Event(
            time.time(), What.RETEST, run=f"retest:{os.getpid()}", host=os.uname().nodename,
            text=passed.title, finding=passed.id, status=passed.status.value, nodes=(node,),
        )  # fmt: skip
        try:
            write(history_folder(), [event])
        except NoHistory as error:
            say(f"this test is not kept, and lets no node back: {error}")
    return replace(
        report,
        # The exit code is of this node: a partner's fault is said, and not its own.
        findings=(passed, *(f for f in report.findings if f.status.value in ("ok", "warn"))),
        facts={**report.facts, "only": {"node": node, "status": passed.status.value}},
    )
