"""relkit nodes: take nodes out of a cluster, test them, and put them back."""

from __future__ import annotations

import sys
import time

import click

from relkit.command_group import CommandGroup
from relkit.commands.shared.node_actions import (
    action_options,
    cluster_options,
    open_engine,
    run_action,
)
from relkit.commands.subcommands.nodes_retest import retest


@click.group(cls=CommandGroup)
def nodes() -> None:
    """Drain nodes with a finding as the reason, and put them back once they pass its test.

    Nothing is done without --yes. At most a tenth of the fleet is taken out in a day. All of it
    is in relkit history.

    \b
    Examples:
      relkit nodes drain n7 --finding RK-NET-002 --why "slow at sending" --yes
      relkit nodes retest n7 --nodes hosts.txt
      relkit nodes undrain n7 --yes
    """


@nodes.command("list")
@cluster_options
@click.option("--json", "fmt", flag_value="json", default=None, help="One JSON document.")
def list_nodes(engine: str, kubectl_args: str, fmt: str | None) -> int:
    """Show which nodes are out, and why.

    \b
    Example:
      relkit nodes list --engine slurm
    """
    from relkit.commands.shared.options import finish
    from relkit.findings import Finding, Report, Status
    from relkit.hosts import fold
    from relkit.nodes.rules import most_a_day

    started = time.time()
    states = open_engine(engine, kubectl_args).nodes()
    out = [state for state in states if state.is_out]
    findings = [
        Finding("RK-NODE-003", Status.OK, f"{state.name} is out: {state.reason or 'no reason'}",
                nodes=state.name)
        for state in out
    ] or [Finding("RK-NODE-003", Status.OK, f"none of {len(states)} nodes is out")]  # fmt: skip
    facts = {
        "engine": engine,
        "nodes": len(states),
        "out": fold(state.name for state in out),
        "most_a_day": most_a_day(len(states)),
    }
    report = Report(
        "nodes", tuple(findings), facts, started, time.time() - started, tuple(sys.argv)
    )
    return finish(report, fmt, None, force=False)


@nodes.command()
@action_options
@click.option("--finding", required=True, metavar="ID", help="What is wrong: RK-NET-002.")
@click.option("--why", default="", metavar="TEXT", help="The finding in words.")
@click.argument("names", metavar="NODES")
def drain(
    engine: str,
    kubectl_args: str,
    yes: bool,
    fmt: str | None,
    finding: str,
    why: str,
    names: str,
) -> int:
    """Take NODES out: no new work goes there, and what runs goes on.

    \b
    Example:
      relkit nodes drain 'n[7-8]' --finding RK-NET-002 --why "slow at sending" --yes
    """
    from relkit.errors import UsageProblem
    from relkit.findings import docs_of

    if not docs_of(finding):
        raise UsageProblem(
            f"{finding!r:.40} is no finding's id", next_step="Write one as RK-NET-002."
        )
    return run_action(
        engine, kubectl_args, yes, fmt, lambda act, listed: act.drain(listed, finding, why), names
    )


@nodes.command()
@action_options
@click.argument("names", metavar="NODES")
def undrain(engine: str, kubectl_args: str, yes: bool, fmt: str | None, names: str) -> int:
    """Put NODES back that have passed a test of what they were drained for, since then.

    \b
    Example:
      relkit nodes undrain n7 --yes
    """
    return run_action(
        engine, kubectl_args, yes, fmt, lambda act, listed: act.undrain(listed), names
    )


@nodes.command()
@action_options
def undo(engine: str, kubectl_args: str, yes: bool, fmt: str | None) -> int:
    """Take back the last drain from this host, without a test: it was a mistake.

    \b
    Example:
      relkit nodes undo --yes
    """
    return run_action(engine, kubectl_args, yes, fmt, lambda act, _: act.undo(), "")


nodes.add_command(retest)
