"""The processes of mpirun: Open MPI, MPICH, Intel MPI.

The variables are those that Open MPI's manual (mpirun, "Environment variables") and MPICH's process
manager Hydra set. None of them says where process 0 runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from relkit.files.input_file import read_input_text
from relkit.launch.peers.rendezvous_host import NoRendezvousHost, RendezvousHost, number

# (who, number of the process, how many there are, how many on this node)
_LAUNCHERS = (
    (
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
)
# Files that batch systems leave on every node; the first host is where the job's script ran.
_HOST_FILES = ("PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "PE_HOSTFILE")
_JOB_IDS = ("PBS_JOBID", "LSB_JOBID", "JOB_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
_MAX_BYTES = 16 << 20


def mpi_process(environ: Mapping[str, str]) -> RendezvousHost | None:
    """The first host of the batch system that mpirun runs in; None outside mpirun.

    Args:
        environ: of this process.

    Raises:
        NoRendezvousHost: several launchers on a node, or nobody says which host is the first.
    """
    for source, rank, size, local_size in _LAUNCHERS:
        index, nodes = number(environ.get(rank)), number(environ.get(size))
        if index is None or not nodes:
            continue
        here = number(environ.get(local_size))
        if here is not None and here > 1:
            raise NoRendezvousHost(
                f"mpirun has started {here} launchers on this node; one is needed, and it starts "
                "the workers",
                next_step="Write: mpirun --map-by ppr:1:node relkit launch --nproc-per-node ...",
            )
        variable, host = _first_host(environ)
        if not host:
            raise NoRendezvousHost(
                f"{source} says that this is process {index} of {nodes}, but not where process 0 "
                "is",
                next_step="Add -x MASTER_ADDR=HOST to mpirun (the first host), or --nodes "
                "hosts.txt to relkit launch.",
            )
        job = next((environ[name] for name in _JOB_IDS if environ.get(name)), host)
        # Not `is_first`: mpirun may number hosts in another order than the batch system.
        return RendezvousHost(f"{source} and {variable}", job, host, nodes=nodes)
    return None


def _first_host(environ: Mapping[str, str]) -> tuple[str, str]:
    for variable in _HOST_FILES:
        path = environ.get(variable)
        if not path:
            continue
        try:
            words = read_input_text(Path(path), _MAX_BYTES).split()
        except (OSError, UnicodeDecodeError):
            continue
        if words:
            return variable, words[0]
    return "", ""
