"""The options of `relkit launch` for replicas of what is in memory."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relkit.commands.shared.options import FiniteRange, KeptOptions
from relkit.errors import UsageProblem

if TYPE_CHECKING:
    from relkit.launch.replicas.replica_host import ReplicaHost

REPORT = "flash_replicas.json"
_KEPT = KeptOptions("replicas")

# Kept in the context, not handed to the command: it takes them as one ReplicaSettings.
REPLICAS = (
    _KEPT.option("--replica-count", type=click.IntRange(min=0, max=65_536), default=0,
                 show_default=True, metavar="R",
                 help="Keep copies of what each rank has in memory on R other hosts, the next ones "
                 "in order: if a host dies, the ranks of the spare or new one in its place start "
                 "from them. The same on all nodes, spares included."),
    _KEPT.option("--replica-max-mb-per-s", type=FiniteRange(min=0.0), metavar="MB/S",
                 help="Send such copies no faster than this from each node; 0: as fast as the link "
                 "is. [default: a tenth of the link's speed, or 100 where that is not known]"),
)  # fmt: skip


def check_replicas(ctx: click.Context, options: Namespace) -> None:
    """Refuse more replicas than the job has other nodes.

    Args:
        options: of torchrun; the number of nodes is known.

    Raises:
        UsageProblem: there are not so many.
    """
    count = _KEPT.of(ctx)["replica_count"]
    low, _, high = options.nnodes.partition(":")
    most = int(high or low) - 1
    if count > most:
        raise UsageProblem(
            f"--replica-count {count}: the job has {most} other nodes at most (--nnodes"
            f" {options.nnodes})",
            next_step=f"Write --replica-count {most}, or leave it out." if most
            else "Leave it out: a job of one node has no other host.",
        )  # fmt: skip


def replica_host(ctx: click.Context, timeout_s: float, folder: Path) -> ReplicaHost:
    """The host of this launcher's replicas; check_replicas went before.

    Args:
        timeout_s: how long fetching may take; folder: the timeline folder, for the report.
    """
    from relkit.commands.shared.incident import keep_report
    from relkit.flash_checkpoint.replicas.origin import Origin
    from relkit.launch.replicas.replica_host import ReplicaHost
    from relkit.launch.replicas.resume_report import resume_report
    from relkit.launch.replicas.settings import ReplicaSettings
    from relkit.log_lines import say as log

    asked = _KEPT.of(ctx)
    limit = asked["replica_max_mb_per_s"]
    settings = ReplicaSettings(asked["replica_count"], -1.0 if limit is None else limit, timeout_s)

    def publish(origin: Origin) -> None:
        report = resume_report(origin, argv=tuple(sys.argv), started=time.time())
        keep_report(report, folder / REPORT)

    return ReplicaHost(settings, log, publish)
