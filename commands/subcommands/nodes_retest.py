"""relkit nodes retest: the network check of one node, with a few others."""

from __future__ import annotations

import click

from relkit.commands.shared.fleet_options import fleet_options
from relkit.commands.shared.options import FiniteRange, finish
from relkit.netcheck.measure.probes.names import AUTO, PROBES


@click.command()
@fleet_options
@click.option(
    "--probe",
    type=click.Choice([AUTO, *PROBES]),
    default=AUTO,
    show_default=True,
    help="What carries the test traffic, as in relkit netcheck.",
)
@click.option(
    "--slow",
    "slow_fraction",
    type=FiniteRange(0.01, 0.99),
    default=0.1,
    show_default=True,
    help="How far below the others counts as slow, as a share.",
)
@click.option("--json", "fmt", flag_value="json", default=None, help="One JSON document.")
@click.argument("node")
def retest(
    probe: str,
    slow_fraction: float,
    fmt: str | None,
    node: str,
    **fleet: str | int | float,
) -> int:
    """Measure NODE with up to five others of --nodes; if it passes, it may be undrained.

    The same as relkit netcheck --only NODE.

    \b
    Example:
      relkit nodes retest n7 --nodes hosts.txt
    """
    from relkit.commands.shared.netcheck_run import check_options
    from relkit.commands.shared.retest import retest as test_again
    from relkit.netcheck.model import Thresholds

    options = check_options(probe, float(fleet["timeout_s"]), 0.5, 4, (), False, False)
    report = test_again(fleet, node, probe, options, Thresholds(slow_fraction=slow_fraction))
    return finish(report, fmt, None, force=False)
