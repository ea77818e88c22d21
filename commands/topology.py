"""relkit topology: rank orders that follow the network."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from relkit.command_group import CommandGroup
from relkit.commands.shared.options import finish, report_options
from relkit.errors import UsageProblem
from relkit.log_lines import say_report
from relkit.output import emit_text


@click.group(cls=CommandGroup)
def topology() -> None:
    """Order nodes so that neighbours in the network are neighbours in rank.

    \b
    Example:
      relkit topology sort network.txt --nodes hosts.txt
    """


@topology.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--nodes",
    metavar="NODES",
    help="The job's nodes: a file, a node set, or -. Default: all nodes of FILE.",
)
@click.option("--exclude", "-x", default="", metavar="NODES", help="Nodes to leave out.")
@report_options
def sort(
    file: Path,
    nodes: str | None,
    exclude: str,
    fmt: str | None,
    output: Path | None,
    force: bool,
) -> int:
    """Print nodes in rank order, one a line.

    FILE has a line `asw psw node` for each node: its access switch, the switch above, and the
    node's name or address. A summary and warnings go to stderr.

    \b
    Examples:
      relkit topology sort network.txt > order.txt
      relkit topology sort network.txt --nodes "node[001-128]" -x node007
      relkit topology sort network.txt --json | jq .crossings.saved
    """
    from relkit.hosts import read_nodes
    from relkit.reports.networks.topology_report import topology_report
    from relkit.topology import Topology, rank_order, read

    started = time.time()
    network = read(file)
    warnings = list(network.warnings)
    given: tuple[str, ...] = ()
    if nodes is not None:
        listed = read_nodes(nodes, exclude=exclude)
        warnings += listed.warnings
        given = tuple(spec.name for spec in listed.nodes)
        # The file may know a node by its address, as DLRover's does.
        by_address = {
            spec.name: network.places[spec.target]
            for spec in listed.nodes
            if spec.target in network.places
        }
        network = Topology({**by_address, **network.places})
    elif exclude:
        out = {spec.name for spec in read_nodes(exclude).nodes}
        given = tuple(node for node in network.places if node not in out)
        if not given:
            raise UsageProblem("no node is left")
    report = topology_report(
        rank_order(network, given), warnings, argv=tuple(sys.argv), started=started
    )
    if fmt is not None:
        return finish(report, fmt, output, force)
    lines = "".join(f"{node}\n" for node in report.facts["order"])
    emit_text(lines, output, force=force)
    say_report(report)
    return report.exit_code
