"""What the commands of `relkit nodes` share: which cluster, whether to act, and how to say it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from relkit.commands.shared.options import Decorated, with_options

if TYPE_CHECKING:
    from relkit.findings import Finding
    from relkit.nodes.act import NodeActions
    from relkit.nodes.model import Engine

_CLUSTER = (
    click.option("--engine", type=click.Choice(["slurm", "kubernetes"]), default="slurm",
                 show_default=True, help="Whose nodes they are."),
    click.option("--kubectl-args", default="", metavar="ARGS", help="Options passed to kubectl."),
)  # fmt: skip
_ACTION = (
    *_CLUSTER,
    click.option("--yes", is_flag=True, help="Do it; without this it is only said."),
    click.option("--json", "fmt", flag_value="json", default=None, help="One JSON document."),
)


def cluster_options(function: Decorated) -> Decorated:
    """--engine and what belongs to each."""
    return with_options(function, _CLUSTER)


def action_options(function: Decorated) -> Decorated:
    """As cluster_options, with --yes and --json."""
    return with_options(function, _ACTION)


def open_engine(name: str, kubectl_args: str) -> Engine:
    """The cluster of --engine."""
    if name == "kubernetes":
        from relkit.nodes.kubernetes_engine import KubernetesEngine

        return KubernetesEngine(kubectl_args)
    from relkit.nodes.slurm_engine import SlurmEngine

    return SlurmEngine()


def run_action(
    engine: str,
    kubectl_args: str,
    yes: bool,
    fmt: str | None,
    action: Callable[[NodeActions, tuple[str, ...]], Finding],
    names: str,
) -> int:
    """Do one action, print its report, and return the exit code.

    Args:
        engine, kubectl_args, yes, fmt: values of action_options.
        action: gets the actions and the nodes; names: a node set, or "".
    """
    from relkit.commands.shared.options import finish
    from relkit.findings import Report
    from relkit.history.place import history_folder
    from relkit.hosts import read_nodes
    from relkit.nodes.act import NodeActions

    started = time.time()
    listed = tuple(node.name for node in read_nodes(names).nodes) if names else ()
    act = NodeActions(open_engine(engine, kubectl_args), history_folder(), is_real=yes)
    finding = action(act, listed)
    report = Report(
        "nodes", (finding,), {"engine": engine, "dry_run": not yes},
        started, time.time() - started, tuple(sys.argv),
    )  # fmt: skip
    return finish(report, fmt, None, force=False)
