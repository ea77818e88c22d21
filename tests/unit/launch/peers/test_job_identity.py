"""Which job and node a process belongs to, by what its launcher says."""

from __future__ import annotations

import pytest

from relkit.launch.peers.job_identity import JobIdentity, job_identity

OWN = "n1-" + "0" * 8
SLURM = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "2", "SLURM_NODEID": "1"}
OPEN_MPI = {"PMIX_NAMESPACE": "prterun-1", "OMPI_COMM_WORLD_SIZE": "8"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "abc", "GROUP_RANK": "1"}
KUBEFLOW = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "MASTER_ADDR": "gpt-master-0"}


@pytest.mark.parametrize(
    ("environ", "host", "job_id", "node", "several_nodes"),
    [
        ({}, "n1", "", None, False),
        ({"SLURM_JOB_ID": "77"}, "n1", "77", None, False),
        ({**SLURM, "SLURM_STEP_NUM_NODES": "2"}, "n1", "77.2", "1", True),
        ({**SLURM, "SLURM_STEP_NUM_NODES": "1", "SLURM_NNODES": "4"}, "n1", "77.2", "1", False),
        ({**SLURM, "SLURM_NNODES": "4"}, "n1", "77.2", "1", True),
        ({**TORCHRUN, "GROUP_WORLD_SIZE": "2", **SLURM}, "n1", "abc", "1", True),
        ({**TORCHRUN, "GROUP_WORLD_SIZE": "1"}, "n1", "abc", "1", False),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, "n1", "prterun-1", None, True),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "8"}, "n1", "prterun-1", None, False),
        ({"PBS_JOBID": "5.p", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "1"}, "n1", "5.p", None, True),
        ({"LSB_JOBID": "9"}, "n1", "9", None, False),
        ({"JOB_COMPLETION_INDEX": "3", "PET_NNODES": "4"}, "gpt-3", "gpt", "gpt-3", True),
        ({"JOB_COMPLETION_INDEX": "0"}, "gpt-0", "gpt", "gpt-0", True),
        ({"JOB_COMPLETION_INDEX": "0", "PET_NNODES": "1"}, "gpt-0", "gpt", "gpt-0", False),
        ({**KUBEFLOW, "WORLD_SIZE": "4"}, "gpt-worker-1", "gpt", "gpt-worker-1", True),
        ({**KUBEFLOW, "WORLD_SIZE": "1"}, "gpt-master-0", "gpt", "gpt-master-0", False),
        ({"POD_NAME": "d-edljob-w-1", "NODE_RANK": "1", "NODE_NUM": "2"}, "d-edljob-w-1",
         "d-edljob-w", "d-edljob-w-1", True),
        ({"SLURM_JOB_ID": "7", "SLURM_NNODES": "many"}, "n1", "7", None, False),
    ],
)  # fmt: skip
def test_what_launchers_say(
    environ: dict[str, str], host: str, job_id: str, node: str | None, several_nodes: bool
) -> None:
    made = job_identity(environ, host, "boot/1")
    own = job_identity({}, host, "boot/1").node
    assert made == JobIdentity(job_id, node or own, several_nodes)


def test_two_containers_of_one_name_are_two_nodes() -> None:
    first, second = (job_identity(OPEN_MPI, "n1", f"boot/{number}").node for number in (1, 2))
    assert first != second
    assert first == job_identity(OPEN_MPI, "n1", "boot/1").node
