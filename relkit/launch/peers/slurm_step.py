"""The nodes of a Slurm step: `srun --ntasks-per-node 1 relkit launch ...`.

The variables are those of srun's manual, section OUTPUT ENVIRONMENT VARIABLES.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from relkit.hosts import slurm_nodes
from relkit.launch.peers.rendezvous_host import NoRendezvousHost, RendezvousHost, is_zero, number


def slurm_step(
    environ: Mapping[str, str], address_of: Callable[[str], str]
) -> RendezvousHost | None:
    """The first node of the step; None outside Slurm.

    Args:
        environ: of this process.
        address_of: how to reach a node that Slurm calls so.

    Raises:
        NoRendezvousHost: a batch script without srun, or several launchers on a node.
        UsageProblem: the list of nodes cannot be read.
    """
    job, step = environ.get("SLURM_JOB_ID"), environ.get("SLURM_STEP_ID")
    if not job:
        return None
    nodelist = environ.get("SLURM_STEP_NODELIST")
    if not (step and nodelist):
        raise NoRendezvousHost(
            f"this is Slurm job {job}, but no step of it: one launcher is needed on each node",
            next_step="Write: srun --ntasks-per-node 1 relkit launch ...",
        )
    names = [spec.name for spec in slurm_nodes(nodelist, "SLURM_STEP_NODELIST").nodes]
    tasks = number(environ.get("SLURM_STEP_NUM_TASKS"))
    if tasks is not None and tasks > len(names):
        raise NoRendezvousHost(
            f"Slurm has started {tasks} launchers on {len(names)} nodes; one on each is needed, "
            "and it starts the workers",
            next_step="Write: srun --ntasks-per-node 1 relkit launch --nproc-per-node ...",
        )
    return RendezvousHost(
        source=f"Slurm step {job}.{step}",
        job_id=f"{job}.{step}",
        host=address_of(names[0]),
        is_first=is_zero(environ.get("SLURM_NODEID")),
        nodes=len(names),
    )
