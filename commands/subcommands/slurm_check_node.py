"""relkit slurm check-node: what Prolog, Epilog and HealthCheckProgram of slurm.conf run."""

from __future__ import annotations

import os
import shlex

import click

from relkit.commands.shared.options import FiniteRange


@click.command("check-node")
@click.option(
    "--when",
    type=click.Choice(["prolog", "epilog", "health"]),
    default="health",
    show_default=True,
    help="prolog: before a job, which stays away from a broken node; epilog: after it; health: "
    "now and then, and to resume a node that passes again.",
)
@click.option(
    "--node",
    default="",
    metavar="NAME",
    help="This node's name in Slurm.  [default: SLURMD_NODENAME, else the host's name]",
)
@click.option(
    "--check",
    "checks",
    type=click.Choice(["linkcheck", "doctor"]),
    multiple=True,
    help="What to run; repeatable. What doctor finds drains no node.  [default: linkcheck]",
)
@click.option(
    "--limit",
    "limit_s",
    type=FiniteRange(1.0, 3600.0),
    default=45.0,
    show_default=True,
    metavar="SECONDS",
    help="For all checks together.",
)
@click.option("--drain", is_flag=True, help="Drain and resume the node; else only say so.")
@click.option(
    "--relkit", default="", metavar="COMMAND", help="How relkit is called for the checks."
)
def check_node(
    when: str, node: str, checks: tuple[str, ...], limit_s: float, drain: bool, relkit: str
) -> int:
    """Check this node; drain it for what is proven wrong with it, resume it once that passes.

    The reason is the finding's id. What a job or its user has brought along is said, and drains
    nothing. deploy/slurm/relkit-node-check calls this with a time limit.

    \b
    Examples:
      relkit slurm check-node
      relkit slurm check-node --when prolog --drain --limit 30
    """
    from relkit.errors import EXIT_OK, RelkitError, UsageProblem
    from relkit.live_job.gpus import gpu_words, gpus_here
    from relkit.log_lines import say
    from relkit.nodes.slurm_engine import SlurmEngine
    from relkit.slurm.node_check import SlurmCheck, runner
    from relkit.slurm.node_check import check_node as look

    try:
        words = shlex.split(relkit)
    except ValueError as error:
        raise UsageProblem(f"--relkit {relkit!r}: {error}") from error
    name = node or os.environ.get("SLURMD_NODENAME", "") or os.uname().nodename.partition(".")[0]
    check = SlurmCheck(when, name, checks or ("linkcheck",), drain)
    used = next((gpu for gpu in gpus_here() if (gpu.used_mib or 0.0) > _IDLE_MIB), None)
    try:
        return look(
            check, SlurmEngine(), runner(words, limit_s), (used and gpu_words(used)) or "", say
        )
    except RelkitError as error:
        # Slurm that does not answer is no fault of this node.
        say(f"not checked: {error}")
        return EXIT_OK


# What a driver takes without any program; a program's context takes some hundred MiB alone.
_IDLE_MIB = 400.0
