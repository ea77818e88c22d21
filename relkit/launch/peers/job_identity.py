"""Which job and which node a process belongs to, by the environment that its launcher gave it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from relkit.launch.peers.kubernetes_pod import elastic_job
from relkit.launch.peers.rendezvous_host import number

# Where a launcher names its job, in the order of asking.
_JOB_VARIABLES = (
    "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE", "PBS_JOBID", "LSB_JOBID",
    "OMPI_MCA_ess_base_jobid",
)  # fmt: skip
# How many processes mpirun has started, and how many of them on this node.
_MPI_SIZES = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_SIZE", "MPI_LOCALNRANKS"),
)
_NUMBERED_POD = re.compile(r"(?P<job>[a-z0-9.-]+?)-(?P<role>master|worker)-\d{1,6}")


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """The job that a process belongs to, and the node that it runs on.

    Args:
        job_id: the same on all nodes of the job; "" where nobody said it.
        node: another one on each node of the job, and the same for all processes there.
        several_nodes: the job has more than this node.
    """

    job_id: str
    node: str
    several_nodes: bool


def job_identity(environ: Mapping[str, str], host: str, machine: str) -> JobIdentity:
    """What torchrun, Slurm, mpirun or Kubernetes says of the job and of this node.

    Args:
        environ: of this process.
        host: this node's name for itself: two containers may have the same one.
        machine: tells machines and containers apart that have one name.
    """
    own = f"{host}-{hashlib.sha256(machine.encode()).hexdigest()[:8]}"
    job_id = _job_id(environ, host)
    if environ.get("TORCHELASTIC_RUN_ID") and (count := number(environ.get("GROUP_WORLD_SIZE"))):
        return JobIdentity(job_id, environ.get("GROUP_RANK") or own, count > 1)
    if environ.get("SLURM_JOB_ID"):
        nodes = environ.get("SLURM_STEP_NUM_NODES") or environ.get("SLURM_NNODES")
        return JobIdentity(job_id, environ.get("SLURM_NODEID") or own, (number(nodes) or 1) > 1)
    for all_of_them, here in _MPI_SIZES:
        size = number(environ.get(all_of_them))
        if size is not None:
            return JobIdentity(job_id, own, size > (number(environ.get(here)) or 1))
    pods = _pods(environ, host)
    # A pod's name is its own among all pods of the job, and a restarted one has it again.
    return JobIdentity(job_id, own if pods is None else host, pods is not None and pods != 1)


def _job_id(environ: Mapping[str, str], host: str) -> str:
    for name in _JOB_VARIABLES:
        if environ.get(name):
            step = environ.get("SLURM_STEP_ID", "") if name == "SLURM_JOB_ID" else ""
            return environ[name] + (f".{step}" if step else "")
    elastic = elastic_job(environ)
    if elastic is not None:
        return elastic.job_id
    index = environ.get("JOB_COMPLETION_INDEX", "")
    if index and host.endswith(f"-{index}"):
        return host.removesuffix(f"-{index}")
    pod = _NUMBERED_POD.fullmatch(host)
    return pod["job"] if pod is not None and _is_pytorch_job(environ) else ""


def _is_pytorch_job(environ: Mapping[str, str]) -> bool:
    return "MASTER_ADDR" in environ and "KUBERNETES_SERVICE_HOST" in environ


def _pods(environ: Mapping[str, str], host: str) -> int | None:
    """How many pods the job has, 0 where nobody said it; None outside such a job."""
    if elastic_job(environ) is not None:
        return number(environ.get("NODE_NUM")) or 0
    if number(environ.get("JOB_COMPLETION_INDEX")) is not None:
        return number(environ.get("PET_NNODES")) or 0
    if _is_pytorch_job(environ) and _NUMBERED_POD.fullmatch(host):
        # PET_NNODES of an elastic job is a range, and WORLD_SIZE may count processes.
        return number(environ.get("PET_NNODES")) or number(environ.get("WORLD_SIZE")) or 0
    return None


def this_machine() -> str:
    """A text that no other machine has, and no container whose processes cannot be seen here."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        rooms = [Path(f"/proc/self/ns/{kind}").stat().st_ino for kind in ("net", "pid")]
    except (OSError, UnicodeDecodeError):
        return ""
    return "/".join([boot, *map(str, rooms)])
