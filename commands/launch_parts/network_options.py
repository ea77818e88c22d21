"""The options of `relkit launch` for the network check: read here, judged together."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relkit.commands.shared.options import FiniteRange, FurtherWords, KeptOptions
from relkit.errors import UsageProblem
from relkit.netcheck.measure.probes.names import PROBES
from relkit.process.command_words import command_words

if TYPE_CHECKING:
    from relkit.findings import Report
    from relkit.launch.job.topology_ranks import TopologyRanks
    from relkit.launch.netcheck.service import NetcheckService

# Words of --box-pairs, as the guide writes them: 0:1 2:4.
_PAIRS = r"\d+:\d+(,\d+:\d+)*"

_OF_THE_CHECK = ("network_probe", "exclude_straggler", "on_bad_node", "switchbox_check")
_KEPT = KeptOptions("network")

# Kept in the context, not handed to the command: it takes them as one NetworkCheck.
NETWORK_CHECK = (
    _KEPT.option("--network-check", is_flag=True,
                 help="Measure the network between the nodes before any worker starts; a dead "
                 "node leaves the job with exit code 5."),
    _KEPT.option("--network-probe", type=click.Choice(PROBES),
                 help="What carries the traffic of --network-check, as relkit netcheck --probe; "
                 "the same on all nodes. [default: tcp]"),
    _KEPT.option("--exclude-straggler", is_flag=True,
                 help="With --network-check: nodes with a slow network or a slow device leave the "
                 "job too."),
    _KEPT.option("--on-bad-node", metavar="COMMAND",
                 help="Run this on a node that leaves, {node} standing for its name. "
                 "[default: print what it could be]"),
    _KEPT.option("--switchbox-check", is_flag=True,
                 help="With --network-check: check the links between each node's GPUs first."),
    _KEPT.option("--box-pairs", cls=FurtherWords, more=_PAIRS, multiple=True, metavar="PAIRS",
                 help='Sockets to pair in the switchbox check, as "A:B C:D" or one word each.'),
    _KEPT.option("--min-bandwidth-gbps", type=FiniteRange(min=0), metavar="GBPS",
                 help="A link of the switchbox check is at fault below this, in Gbit/s. "
                 "[default: 80]"),
    _KEPT.option("--min-bandwidth", type=FiniteRange(min=0), metavar="MB_PER_S",
                 help="The same in MB/s, as the DLRover guide writes it."),
    _KEPT.option("--min-channels", type=click.IntRange(min=1), metavar="N",
                 help="A node fails when fewer of its links are good. [default: 2]"),
)  # fmt: skip
TOPOLOGY = (
    _KEPT.option("--topology", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
                 help="Number the nodes so that neighbours in the network are neighbours in rank: "
                 "lines of `asw psw ip`. With c10d the file may name more nodes than the job has; "
                 "with --master-addr it replaces --node-rank."),
)  # fmt: skip


def check_network_options(ctx: click.Context) -> None:
    """Refuse options that mean nothing alone, before anything starts.

    Raises:
        UsageProblem: says which option misses which.
    """
    asked = _KEPT.of(ctx)
    if not asked["network_check"]:
        alone = [name for name in _OF_THE_CHECK if asked[name]]
        if alone:
            flag = "--" + alone[0].replace("_", "-")
            raise UsageProblem(f"{flag} needs --network-check", next_step="Add --network-check.")
    if not asked["switchbox_check"]:
        for name in ("box_pairs", "min_bandwidth_gbps", "min_bandwidth", "min_channels"):
            if asked[name] not in (None, ()):
                flag = "--" + name.replace("_", "-")
                raise UsageProblem(
                    f"{flag} needs --switchbox-check",
                    next_step="Add --network-check --switchbox-check.",
                )
    _hook(asked)
    _links(asked)


def order_ranks(
    ctx: click.Context, options: Namespace, log: Callable[[str], None]
) -> TopologyRanks | None:
    """Give the nodes the numbers of the topology file, where one is given.

    With a static rendezvous, torchrun's --node-rank is set.

    Returns:
        what numbers the nodes when they meet (c10d); None where there is nothing more to do.

    Raises:
        UsageProblem: the ranks of this job are not ours to give, or the file does not fit it.
        BadInputFile: see relkit.topology.read().
    """
    file = _KEPT.of(ctx)["topology"]
    if file is None:
        return None
    low, _, high = options.nnodes.partition(":")
    is_static = options.rdzv_backend == "static" and not options.standalone
    if options.standalone or (is_static and (high or low) != low):
        raise UsageProblem(
            "--topology needs nodes that meet: c10d, or --master-addr and their fixed number",
            next_step="Write --rdzv-backend c10d --rdzv-endpoint HOST:PORT.",
        )
    from relkit.launch.job.node_name import node_name
    from relkit.launch.netcheck.node_order import named_as, number_in, order_nodes, own_names
    from relkit.log_lines import warning
    from relkit.topology import read

    topology = read(file, may_be_empty=True)
    if not topology.places:
        # As DLRover's is until somebody writes into it.
        log(f"{file} names no node: ranks are given as without --topology")
        return None
    if not is_static:
        from relkit.launch.job.topology_ranks import TopologyRanks, place_of

        for line in topology.warnings:
            log(warning(f"{file}: {line}"))
        named = named_as(tuple(topology.places), own_names())
        place = place_of(topology, named, node_name())
        return TopologyRanks(topology, str(file), place, log)
    master = options.rdzv_endpoint.rpartition(":")[0] or options.rdzv_endpoint
    order = order_nodes(topology, int(low), master or options.master_addr)
    options.node_rank = number_in(order, own_names())
    log(f"this is node {options.node_rank} of {low}, by {file}")
    if options.node_rank == 0:
        for line in topology.warnings:
            log(warning(f"{file}: {line}"))
        before, after = order.before, order.after
        log(f"order of nodes: {' '.join(order.nodes)}")
        log(
            f"switch crossings between neighbours: {after.asw} (file's order: {before.asw}), "
            f"of them between upper switches: {after.psw} (file's order: {before.psw})"
        )
    return None


def netcheck_service(
    ctx: click.Context,
    options: Namespace,
    folder: Path,
    log: Callable[[str], None],
    may_replace: Callable[[], bool],
    tell: Callable[[Report, Path | None], None],
) -> NetcheckService | None:
    """The check that was asked for; None for none.

    Args:
        options: torchrun's.
        folder: the timeline folder, for netcheck.json on the node that leads.
        log: writes one line to the terminal.
        may_replace: other nodes may come in the places of those that leave.
        tell: gets each report of the network, and where it is; None where it could not be written.
    """
    asked = _KEPT.of(ctx)
    if not asked["network_check"]:
        return None
    from relkit.launch.netcheck.network_check import CheckSettings, NetworkCheck
    from relkit.launch.netcheck.service import NetcheckService

    settings = CheckSettings(
        exclude_stragglers=asked["exclude_straggler"],
        probe=asked["network_probe"] or "tcp",
        links=_links(asked),
        hook=_hook(asked),
        min_nodes=int(options.nnodes.partition(":")[0]),
        argv=tuple(sys.argv),
    )
    check = NetworkCheck(settings, log, partial(_show, folder, log, tell))
    check.may_replace = may_replace
    return NetcheckService(check)


def _hook(asked: dict[str, Any]) -> tuple[str, ...]:
    command = asked["on_bad_node"]
    return () if command is None else command_words("--on-bad-node", command)


def _links(asked: dict[str, Any]) -> Callable[[], Report] | None:
    if not asked["switchbox_check"]:
        return None
    from relkit.linkcheck.pairs import parse_pairs
    from relkit.linkcheck.run import MIN_CHANNELS, linkcheck, min_bandwidth

    pairs = parse_pairs(asked["box_pairs"]) if asked["box_pairs"] else ()
    min_gbps = min_bandwidth(asked["min_bandwidth_gbps"], asked["min_bandwidth"])
    channels = asked["min_channels"]
    if pairs and len(pairs) < (channels or MIN_CHANNELS):
        raise UsageProblem(
            f"{len(pairs)} pair(s) can never give {channels or MIN_CHANNELS} good channels",
            next_step=f"Name more pairs, or use --min-channels {len(pairs)}.",
        )
    tool = os.environ.get("SWITCHBOX_CHECK_TOOL_PATH", "")
    return partial(linkcheck, pairs, min_bandwidth_gbps=min_gbps, min_channels=channels, tool=tool)


def _show(
    folder: Path,
    log: Callable[[str], None],
    tell: Callable[[Report, Path | None], None],
    report: Report,
) -> None:
    """A report on stderr, and as a file of its own in the timeline folder."""
    from relkit.commands.shared.incident import keep_report
    from relkit.log_lines import say_report

    say_report(report, apart=True)
    path = folder / f"{report.command}.json"
    is_written = keep_report(report, path)
    if is_written:
        log(f"the {report.command} report is in {path}")
    if report.command == "netcheck":
        tell(report, path if is_written else None)
