"""relkit straggler preflight: which device, host or link would make a job slow."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from relkit.commands.shared.fleet_options import fleet_options
from relkit.commands.shared.options import FiniteRange, finish
from relkit.log_lines import say_progress
from relkit.netcheck.measure.probes.names import PROBES

# A probe of torch's needs that much longer than its measurement to begin and end.
_START_S = {"tcp": 3.0}
_TORCH_START_S = 60.0


@click.command()
@fleet_options
@click.option(
    "--rounds",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="How often every device is scored.",
)
@click.option(
    "--probe",
    type=click.Choice(PROBES),
    default="tcp",
    show_default=True,
    help="What carries the traffic between nodes; gloo and nccl measure collectives.",
)
@click.option(
    "--duration",
    "duration_s",
    type=FiniteRange(0.05, 60.0),
    default=0.5,
    show_default=True,
    help="Seconds of each measurement of bandwidth.",
)
@click.option(
    "--slow",
    "slow_fraction",
    type=FiniteRange(0.01, 0.99),
    default=0.1,
    show_default=True,
    help="How far below the others, or the baseline, counts as slow, as a share (0.1 = 10 %).",
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="BUNDLE",
    help="An earlier good run (-o): devices and links are compared with what they did then.",
)
@click.option(
    "--output",
    "-o",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="BUNDLE",
    help="Save scores, edges, report.json, report.html and graph.dot there.",
)
@click.option("--force", "-f", is_flag=True, help="Replace the files of an existing bundle.")
@click.option("--jsonl", "fmt", flag_value="jsonl", help="One finding a line, as JSON.")
@click.option("--json", "fmt", flag_value="json", default=None, help="One JSON document.")
def preflight(
    rounds: int,
    probe: str,
    duration_s: float,
    slow_fraction: float,
    baseline: Path | None,
    folder: Path | None,
    force: bool,
    fmt: str | None,
    **fleet: str | int | float,
) -> int:
    """Find the device, host or link that would make a job slow, before it starts.

    Scores arithmetic and memory of every device in several rounds, then measures pairs of nodes as
    relkit netcheck does, and names what falls behind the others or behind an earlier run.

    \b
    Examples:
      relkit straggler preflight --nodes hosts.txt
      relkit straggler preflight --nodes 'node[001-064]' --probe gloo -o good-day
      relkit straggler preflight --nodes hosts.txt --baseline good-day --slow 0.05
    """
    from relkit.commands.shared.netcheck_run import measure, refuse_old_bundle, save_all
    from relkit.netcheck.measure.baseline import baseline_of
    from relkit.netcheck.measure.bundle import load_any
    from relkit.netcheck.measure.options import CheckOptions
    from relkit.netcheck.model import Thresholds
    from relkit.straggler.preflight.report import preflight_report

    started = time.time()
    refuse_old_bundle(folder, force)
    before = load_any(baseline) if baseline is not None else None
    thresholds = Thresholds(
        slow_fraction=slow_fraction, baseline=baseline_of(before) if before else {}
    )
    timeout_s = float(fleet["timeout_s"])
    options = CheckOptions(
        start_s=timeout_s,
        timeout_s=max(timeout_s, 3 * duration_s + _START_S.get(probe, _TORCH_START_S)),
        duration_s=duration_s,
        compute_rounds=rounds,
    )
    result = measure(fleet, "quick", None, probe, options, thresholds)
    report = preflight_report(
        result,
        thresholds,
        before.scores if before else (),
        argv=sys.argv,
        started=started,
        duration_s=time.time() - started,
    )
    if folder is not None:
        for path in save_all(folder, result, report):
            say_progress(f"wrote {path}")
    return finish(report, fmt, None, force)
