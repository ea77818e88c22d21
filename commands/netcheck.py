"""relkit netcheck: which nodes, links and uplinks of a fleet are dead or slow."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relkit.commands.shared.fleet_options import fleet_options
from relkit.commands.shared.options import FiniteRange, finish
from relkit.findings import Report
from relkit.log_lines import say_progress
from relkit.netcheck.measure.probes.names import AUTO, PROBES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relkit.netcheck.check_result import CheckResult
    from relkit.netcheck.measure.options import CheckOptions
    from relkit.netcheck.model import Thresholds


@click.command()
@fleet_options
@click.option(
    "--mode",
    type=click.Choice(["quick", "full", "groups"]),
    default="quick",
    show_default=True,
    help="quick: find bad nodes in a few rounds; full: every pair; groups: inside each switch, "
    "then across.",
)
@click.option(
    "--topology",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Which node is behind which switch: lines of `asw psw ip`.",
)
@click.option(
    "--probe",
    type=click.Choice([AUTO, *PROBES]),
    default=AUTO,
    show_default=True,
    help="What carries the test traffic; auto: the first of nccl, hccl and ib that all nodes can "
    "run, else tcp.",
)
@click.option(
    "--duration",
    "duration_s",
    type=FiniteRange(0.05, 60.0),
    default=0.5,
    show_default=True,
    help="Seconds of each measurement of bandwidth: there, back, and both ways at once (ib: whole "
    "seconds).",
)
@click.option(
    "--streams",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="TCP connections in parallel.",
)
@click.option(
    "--sizes",
    "sizes_text",
    metavar="LIST",
    help="Message sizes, as 64K,1M,8M: each is measured and kept, the largest is judged.  "
    "[default: 1M; 16M for collectives and ib]",
)
@click.option("--both-ways", is_flag=True, help="Also measure both directions at once.")
@click.option("--compute", is_flag=True, help="Also score each node's arithmetic and memory.")
@click.option(
    "--slow",
    "slow_fraction",
    type=FiniteRange(0.01, 0.99),
    default=0.1,
    show_default=True,
    help="How far below the fleet's median counts as slow, as a share (0.1 = 10 %).",
)
@click.option(
    "--min-bandwidth-gbps",
    type=FiniteRange(0),
    default=0.0,
    metavar="GBPS",
    help="A bandwidth below this counts as slow, whatever the median is, in Gbit/s.",
)
@click.option(
    "--max-latency",
    "max_latency_us",
    type=FiniteRange(0),
    default=0.0,
    metavar="US",
    help="A longer median round trip counts as slow, in microseconds.",
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="BUNDLE",
    help="An earlier good run (-o): links are compared with what they did then.",
)
@click.option(
    "--from",
    "bundle",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="BUNDLE",
    help="Judge a saved check again; no node is asked anything.",
)
@click.option(
    "--output",
    "-o",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="BUNDLE",
    help="Save raw edges, report.json, report.html and graph.dot there.",
)
@click.option("--force", "-f", is_flag=True, help="Replace the files of an existing bundle.")
@click.option(
    "--only",
    metavar="NODE",
    help="Test this node alone, with up to five others of --nodes: after a repair, before relkit "
    "nodes undrain.",
)
@click.option(
    "--no-history",
    is_flag=True,
    help="Do not keep the result in the history of this host (relkit history), and do not say "
    "which nodes were named before.",
)
@click.option("--jsonl", "fmt", flag_value="jsonl", help="One finding a line, as JSON.")
@click.option("--json", "fmt", flag_value="json", default=None, help="One JSON document.")
def netcheck(
    mode: str,
    topology: Path | None,
    probe: str,
    duration_s: float,
    streams: int,
    sizes_text: str | None,
    both_ways: bool,
    compute: bool,
    slow_fraction: float,
    min_bandwidth_gbps: float,
    max_latency_us: float,
    baseline: Path | None,
    bundle: Path | None,
    folder: Path | None,
    force: bool,
    only: str | None,
    no_history: bool,
    fmt: str | None,
    **fleet: str | int | float,
) -> int:
    """Find the nodes, links and uplinks of a fleet that are dead or slow.

    Runs an agent on every node, measures disjoint pairs in parallel, round by round, and says who
    is at fault, how sure that is, and what was never measured.

    \b
    Examples:
      relkit netcheck --nodes hosts.txt
      relkit netcheck --nodes 'node[001-128]' --mode full -o before-training
      relkit netcheck --nodes hosts.txt --mode groups --topology topology.txt
      relkit netcheck --from before-training --slow 0.2 --json
    """
    from relkit.commands.shared.netcheck_run import (
        check_options,
        kept_in_history,
        measure,
        message_sizes,
        refuse_old_bundle,
        save_all,
    )
    from relkit.netcheck.measure.baseline import load_baseline
    from relkit.netcheck.measure.bundle import load
    from relkit.netcheck.model import Thresholds

    started = time.time()
    refuse_old_bundle(folder, force)
    thresholds = Thresholds(
        slow_fraction=slow_fraction,
        min_bandwidth_gbps=min_bandwidth_gbps,
        max_latency_us=max_latency_us,
        baseline=load_baseline(baseline) if baseline else {},
    )
    if bundle is not None:
        result = load(bundle)
    else:
        sizes_bytes = message_sizes(sizes_text, probe)
        step_timeout_s = float(fleet["timeout_s"])
        options = check_options(
            probe, step_timeout_s, duration_s, streams, sizes_bytes, both_ways, compute
        )
        if only is not None:
            return _retest(fleet, only, probe, options, thresholds, no_history, fmt)
        result = measure(fleet, mode, topology, probe, options, thresholds)
    report = _report(result, thresholds, started)
    if bundle is None and not no_history:
        report = kept_in_history(report, result.nodes)
    if folder is not None:
        for path in save_all(folder, result, report):
            say_progress(f"wrote {path}")
    return finish(report, fmt, None, force)


def _retest(
    fleet: Mapping[str, str | int | float],
    only: str,
    probe: str,
    options: CheckOptions,
    thresholds: Thresholds,
    no_history: bool,
    fmt: str | None,
) -> int:
    from relkit.commands.shared.retest import retest

    report = retest(fleet, only, probe, options, thresholds, keeps=not no_history)
    return finish(report, fmt, None, force=False)


def _report(result: CheckResult, thresholds: Thresholds, started: float) -> Report:
    from relkit.netcheck.report.report import net_report
    from relkit.netcheck.solve.judge import judge

    return net_report(
        result,
        judge(result, thresholds),
        thresholds,
        argv=sys.argv,
        started=started,
        duration_s=time.time() - started,
    )
