"""relkit k8s: jobs and node checks for Kubernetes."""

from __future__ import annotations

import os
from pathlib import Path

import click

from relkit.command_group import CommandGroup
from relkit.commands.shared.options import FiniteRange
from relkit.errors import EXIT_OK, UsageProblem
from relkit.log_lines import say, warning
from relkit.output import emit_text

# relkit.kubernetes.values.ENGINES; `--help` does not wait for YAML's reader.
_ENGINES = ("job", "jobset", "trainjob", "pytorchjob")


@click.group(cls=CommandGroup)
def k8s() -> None:
    """Render jobs for Kubernetes, check its nodes, and end a pod's launcher in time.

    \b
    Examples:
      relkit k8s render job.yaml | kubectl apply -f -
      relkit k8s render elasticjob.yaml --engine jobset
    """


@k8s.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--engine",
    type=click.Choice(_ENGINES),
    help="What runs the pods; before FILE's own. [default: job]",
)
@click.option(
    "--values", "as_values", is_flag=True, help="Print the job file itself, for helm's --values."
)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file."
)
@click.option("--force", "-f", is_flag=True, help="Replace an existing file.")
def render(
    file: Path, engine: str | None, as_values: bool, output: Path | None, force: bool
) -> int:
    """Print the objects of a job file, or of DLRover's ElasticJob, for kubectl.

    FILE is a job file (the values file of the chart) or an ElasticJob. Each key of an ElasticJob
    that has no counterpart is named on stderr. No cluster is asked anything.

    \b
    Examples:
      relkit k8s render job.yaml | kubectl apply -f -
      relkit k8s render elasticjob.yaml --engine trainjob -o trainjob.yaml
      relkit k8s render elasticjob.yaml --values > job.yaml
    """
    from relkit.kubernetes.elastic_job import values_of
    from relkit.kubernetes.objects import as_yaml, objects, without_counterpart
    from relkit.kubernetes.values import read_document, settle

    given = values_of(read_document(file), str(file), lambda line: say(warning(line)))
    if engine is not None:
        given = {**given, "engine": engine}
    values = settle(given, str(file))
    for line in without_counterpart(values):
        say(warning(line))
    made = objects(values)
    emit_text(as_yaml([dict(given)] if as_values else made), output, force=force)
    return EXIT_OK


@k8s.command()
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(min=1.0),
    default=3600.0,
    show_default=True,
    metavar="SECONDS",
    help="Wait so long for them; the pod's own grace period ends it earlier.",
)
def stop(timeout_s: float) -> int:
    """Ask the launchers of this container to save and end, and wait until they have.

    For the preStop hook of a pod: the kubelet tells process 1 only, and a shell there passes
    nothing on. Exit code 0 where they have ended, or there was none; 3 where some run on; 2 outside
    of a pod, where it would end launchers of other jobs.

    \b
    Example:
      relkit k8s stop
    """
    from relkit.kubernetes.stop_launchers import stop_launchers

    if not os.environ.get("KUBERNETES_SERVICE_HOST"):
        raise UsageProblem(
            "this is no pod: launchers of other jobs could be here",
            next_step="Send SIGTERM to the launcher that shall end.",
        )
    return stop_launchers(timeout_s, say)


@k8s.command("node-check")
@click.option(
    "--node",
    envvar=["RELKIT_K8S_NODE_CHECK_NODE", "NODE_NAME"],
    default="",
    metavar="NAME",
    help="This node's name in the cluster.  [default: NODE_NAME]",
)
@click.option(
    "--every",
    "every_s",
    type=FiniteRange(min=1.0),
    metavar="SECONDS",
    help="Look again so often, until SIGTERM.  [default: once]",
)
@click.option("--no-linkcheck", is_flag=True, help="Leave out relkit linkcheck.")
@click.option(
    "--taint",
    metavar="KEY=VALUE:EFFECT",
    help="Set this taint where a link of the node is at fault; take it off when the same check "
    "passes.  [default: none]",
)
@click.option("--dry-run", is_flag=True, help="Print the conditions; ask the cluster nothing.")
def node_check(
    node: str, every_s: float | None, no_linkcheck: bool, taint: str | None, dry_run: bool
) -> int:
    """Check this node, and publish what comes of it as node conditions.

    Runs doctor and linkcheck, and sets the conditions RelkitHostReady and RelkitLinksReady: True
    where the node is fit, False where it is not, Unknown where nobody could tell, as without such
    hardware. The chart runs it on every node (nodeCheck.enabled). Exit codes: 0, 1 a condition is
    False, 3 one is Unknown, or the cluster has refused it.

    \b
    Examples:
      relkit k8s node-check --dry-run
      relkit k8s node-check --every 600 --taint relkit.io/bad-node=true:NoSchedule
    """
    from relkit.kubernetes.api_server import ApiServer
    from relkit.kubernetes.node_check import NodeCheck, check_node
    from relkit.kubernetes.node_conditions import parse_taint

    parsed = None if taint is None else parse_taint(taint)
    if not (node or dry_run):
        raise UsageProblem(
            "this node's name is not known",
            next_step="Set NODE_NAME from fieldRef spec.nodeName, or write --node NAME.",
        )
    server = None if dry_run else ApiServer.of_pod(os.environ)
    return check_node(NodeCheck(node, not no_linkcheck, parsed, every_s), server, say)
