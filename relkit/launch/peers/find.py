"""Where the nodes of a job meet that was started without an endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from relkit.launch.peers.kubernetes_pod import elastic_job, indexed_job
from relkit.launch.peers.mpi_process import mpi_process
from relkit.launch.peers.rendezvous_host import NoRendezvousHost, RendezvousHost, is_zero, number
from relkit.launch.peers.slurm_step import slurm_step

_LOOKED_FOR = (
    "MASTER_ADDR (PyTorchJob), a Slurm step (SLURM_STEP_NODELIST), mpirun "
    "(OMPI_COMM_WORLD_RANK, PMI_RANK), a JobSet or indexed Job (JOB_COMPLETION_INDEX) and an "
    "ElasticJob (POD_NAME, NODE_RANK)"
)

_JOB_IDS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "JOB_NAME")


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is asked of this node.

    Args:
        full_name: gives the node's name with its domain.
        slurm_address: gives the address of a node that Slurm calls so.
    """

    full_name: Callable[[], str]
    slurm_address: Callable[[str], str]


def find(
    environ: Mapping[str, str],
    facts: NodeFacts,
    *,
    min_nodes: int,
    max_nodes: int,
    spares: int = 0,
) -> RendezvousHost:
    """The first source that says where; what somebody has set by hand goes first.

    Args:
        environ: of this process; facts: of this node.
        min_nodes, max_nodes: of the job; spares: launchers beyond them.

    Raises:
        NoRendezvousHost: nobody says where, or the scheduler has started more or fewer nodes.
        UsageProblem: what a scheduler says cannot be read.
    """
    point = (
        master_host(environ, max_nodes + spares)
        or mpi_process(environ)
        or slurm_step(environ, facts.slurm_address)
        or elastic_job(environ)
        or ("JOB_COMPLETION_INDEX" in environ and indexed_job(environ, facts.full_name()))
    )
    if not point:
        raise NoRendezvousHost(
            f"{max_nodes + spares} nodes need a host where they meet; none is named, and none is "
            f"known here: there is no {_LOOKED_FOR}"
        )
    check_count(point, min_nodes=min_nodes, max_nodes=max_nodes, spares=spares)
    return point


def check_count(point: RendezvousHost, *, min_nodes: int, max_nodes: int, spares: int = 0) -> None:
    """Refuse a job that would wait for nodes which do not come, or leave some waiting.

    Raises:
        NoRendezvousHost: the source has counted another number of nodes.
    """
    if not point.nodes or min_nodes <= point.nodes - spares <= max_nodes:
        return
    wanted = str(max_nodes) if min_nodes == max_nodes else f"{min_nodes}:{max_nodes}"
    if not spares:
        raise NoRendezvousHost(
            f"--nnodes {wanted}, but {point.source} has {point.nodes}",
            next_step=f"Write --nnodes {point.nodes}, or start the job on that many nodes.",
        )
    raise NoRendezvousHost(
        f"--nnodes {wanted} and --spares {spares}, but {point.source} has {point.nodes}",
        next_step="Start the job on as many nodes as --nnodes and --spares are together.",
    )


def master_host(environ: Mapping[str, str], max_nodes: int) -> RendezvousHost | None:
    """The host in MASTER_ADDR; None where it is not set.

    A PyTorchJob gives each pod MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, the latter two in
    pods; the master's own MASTER_ADDR may be `localhost` (Kubeflow's training operator).

    Args:
        environ: of this process.
        max_nodes: of the job, to tell a RANK that counts nodes from one that counts processes.
    """
    host = environ.get("MASTER_ADDR")
    if not host:
        return None
    is_first = is_zero(environ.get("NODE_RANK"))
    world_size = number(environ.get("WORLD_SIZE"))
    if is_first is None and world_size == max_nodes:
        is_first = is_zero(environ.get("RANK"))
    job = next((environ[name] for name in _JOB_IDS if environ.get(name)), "")
    port = number(environ.get("MASTER_PORT")) or 0
    return RendezvousHost("MASTER_ADDR", job, host, port if port < 1 << 16 else 0, is_first)
