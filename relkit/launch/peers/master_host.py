"""MASTER_ADDR: a PyTorchJob of Kubeflow, and whoever exports it."""

from __future__ import annotations

from collections.abc import Mapping

from relkit.launch.peers.rendezvous_host import RendezvousHost, is_zero, number

_JOB_IDS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "JOB_NAME")


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
