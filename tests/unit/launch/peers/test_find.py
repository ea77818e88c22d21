"""A job that is started without an endpoint finds its meeting point in what schedulers say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.errors import UsageProblem
from relkit.launch.peers.find import NodeFacts, find, master_host
from relkit.launch.peers.kubernetes_pod import elastic_job, indexed_job
from relkit.launch.peers.mpi_process import mpi_process
from relkit.launch.peers.rendezvous_host import NoRendezvousHost, RendezvousHost
from relkit.launch.peers.slurm_step import slurm_step

FACTS = NodeFacts(lambda: "host", lambda name: name)
SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "node[007-009],gpu1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_NODEID": "2",
}
PYTORCH_JOB = {
    "MASTER_ADDR": "job-master-0",
    "MASTER_PORT": "23456",
    "WORLD_SIZE": "2",
    "RANK": "1",
    "JOB_NAME": "job",
}
ELASTIC_JOB = {
    "POD_NAME": "gpt-edljob-worker-7",
    "NODE_RANK": "1",
    "NODE_NUM": "2",
    "DLROVER_MASTER_ADDR": "elasticjob-gpt-dlrover-master:50001",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
}


def point_of(environ: Mapping[str, str], nodes: int = 2, low: int = 0) -> RendezvousHost:
    return find(environ, FACTS, min_nodes=low or nodes, max_nodes=nodes)


def test_the_first_node_of_a_slurm_step() -> None:
    point = point_of(SLURM, 4)
    assert (point.host, point.is_first, point.nodes) == ("node007", False, 4)
    assert (point.source, point.job_id) == ("Slurm step 4711.0", "4711.0")
    assert point_of({**SLURM, "SLURM_NODEID": "0"}, 4).is_first
    host, _, port = point.endpoint.partition(":")
    assert host == "node007"
    # Below the ports that outgoing connections get.
    assert 20_000 <= int(port) < 29_000
    assert point_of({**SLURM, "SLURM_STEP_ID": "1"}, 4).endpoint != point.endpoint


def test_a_node_is_reached_at_the_address_that_slurm_has() -> None:
    assert slurm_step({}, str) is None
    point = slurm_step(SLURM, {"node007": "10.0.0.7"}.__getitem__)
    assert point is not None
    assert point.host == "10.0.0.7"


def test_a_batch_script_without_srun_is_told_so() -> None:
    script = {name: SLURM[name] for name in ("SLURM_JOB_ID", "SLURM_NODEID")}
    with pytest.raises(NoRendezvousHost, match="no step of it") as caught:
        point_of(script, 4)
    assert "srun --ntasks-per-node 1" in caught.value.next_step


def test_one_launcher_a_node() -> None:
    with pytest.raises(NoRendezvousHost, match="32 launchers on 4 nodes"):
        point_of({**SLURM, "SLURM_STEP_NUM_TASKS": "32"}, 4)
    with pytest.raises(NoRendezvousHost, match="8 launchers on this node") as caught:
        point_of({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "8"})
    assert "ppr:1:node" in caught.value.next_step


@pytest.mark.parametrize(("nodes", "low"), [(3, 3), (5, 5), (8, 5), (2, 1)])
def test_another_number_of_nodes_is_refused(nodes: int, low: int) -> None:
    with pytest.raises(NoRendezvousHost, match=r"Slurm step .* has 4") as caught:
        point_of(SLURM, nodes, low)
    assert "--nnodes 4" in caught.value.next_step


@pytest.mark.parametrize(("nodes", "low"), [(4, 4), (8, 4), (4, 1)])
def test_a_range_that_holds_it_is_not(nodes: int, low: int) -> None:
    assert point_of(SLURM, nodes, low).nodes == 4


def test_a_pytorch_job() -> None:
    point = point_of(PYTORCH_JOB)
    assert (point.endpoint, point.is_first) == ("job-master-0:23456", False)
    first = point_of({**PYTORCH_JOB, "MASTER_ADDR": "localhost", "RANK": "0"})
    assert (first.endpoint, first.is_first) == ("localhost:23456", True)


@pytest.mark.parametrize(
    ("more", "is_first"),
    [
        # A rank among 16 processes is not a number of a node.
        ({"WORLD_SIZE": "16", "RANK": "0"}, None),
        ({"WORLD_SIZE": "16", "RANK": "3", "NODE_RANK": "0"}, True),
        ({"NODE_RANK": "3"}, False),
        ({"WORLD_SIZE": "2", "RANK": "x"}, None),
        ({}, None),
    ],
)
def test_whether_this_is_the_first_node(more: Mapping[str, str], is_first: bool | None) -> None:
    point = point_of({"MASTER_ADDR": "fd00::1", **more})
    assert (point.is_first, point.endpoint) == (is_first, "[fd00::1]:29400")


def test_what_somebody_has_set_by_hand_goes_before_a_scheduler() -> None:
    point = point_of({**SLURM, "MASTER_ADDR": "node007-ib"}, 4)
    assert (point.host, point.job_id) == ("node007-ib", "4711")
    assert master_host(SLURM, 4) is None


def test_a_port_that_is_none_is_left_to_the_default() -> None:
    assert point_of({**PYTORCH_JOB, "MASTER_PORT": "99999"}).port == 0


def test_a_pod_of_an_elastic_job_meets_at_the_service_of_the_first_worker() -> None:
    point = point_of(ELASTIC_JOB)
    assert (point.endpoint, point.is_first, point.nodes) == ("gpt-edljob-worker-0:3333", False, 2)
    # A pod that replaces the first one has another number, and the same rank.
    first = point_of({**ELASTIC_JOB, "NODE_RANK": "0", "POD_NAME": "gpt-edljob-worker-9"})
    assert (first.host, first.is_first) == ("gpt-edljob-worker-0", True)
    assert elastic_job({"POD_NAME": "trainer-0", "NODE_RANK": "0"}) is None


@pytest.mark.parametrize(
    ("name", "index", "endpoint", "is_first", "source"),
    [
        ("train-3.svc.ns.svc.cluster.local", 3, "train-0.svc.ns.svc.cluster.local", False,
         "indexed Job train"),
        ("train-0.svc", 0, "train-0.svc", True, "indexed Job train"),
        ("gpt-workers-0-0.gpt.ns", 0, "gpt-workers-0-0.gpt.ns", True, "JobSet gpt"),
        ("gpt-workers-0-2.gpt.ns", 2, "gpt-workers-0-0.gpt.ns", False, "JobSet gpt"),
        ("gpt-workers-1-0.gpt.ns", 0, "gpt-workers-0-0.gpt.ns", False, "JobSet gpt"),
    ],
)  # fmt: skip
def test_a_numbered_pod(name: str, index: int, endpoint: str, is_first: bool, source: str) -> None:
    point = indexed_job({"JOB_COMPLETION_INDEX": str(index)}, name)
    assert point is not None
    assert (point.host, point.is_first, point.source) == (endpoint, is_first, source)
    facts = NodeFacts(lambda: name, str)
    environ = {"JOB_COMPLETION_INDEX": str(index)}
    assert find(environ, facts, min_nodes=1, max_nodes=9) == point


def test_pods_without_a_headless_service_are_told_so() -> None:
    with pytest.raises(NoRendezvousHost, match="cannot be reached by name") as caught:
        indexed_job({"JOB_COMPLETION_INDEX": "1"}, "train-1")
    assert "subdomain" in caught.value.next_step
    with pytest.raises(NoRendezvousHost, match="not JOB-1"):
        indexed_job({"JOB_COMPLETION_INDEX": "1"}, "a.b")
    assert indexed_job({}, "train-1.svc") is None


def test_mpirun_in_a_batch_system(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("node3\nnode3\nnode4\n")
    environ = {**OPEN_MPI, "PBS_NODEFILE": str(hosts), "PBS_JOBID": "17.pbs"}
    point = point_of(environ)
    # mpirun may number hosts in another order: torch compares names.
    assert (point.host, point.is_first, point.nodes) == ("node3", None, 2)
    assert (point.source, point.job_id) == ("Open MPI and PBS_NODEFILE", "17.pbs")
    hydra = {"PMI_RANK": "0", "PMI_SIZE": "2", "LSB_DJOB_HOSTFILE": str(hosts)}
    assert point_of(hydra).source == "PMI and LSB_DJOB_HOSTFILE"


def test_mpirun_alone_does_not_say_where_process_0_is(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    for file in (empty, tmp_path / "nosuch"):
        with pytest.raises(NoRendezvousHost, match="process 1 of 2") as caught:
            point_of({**OPEN_MPI, "PBS_NODEFILE": str(file)})
        assert "-x MASTER_ADDR=HOST" in caught.value.next_step
    assert mpi_process({}) is None
    assert point_of({**OPEN_MPI, "MASTER_ADDR": "node3"}).host == "node3"


def test_where_nobody_says_it_is_told_what_was_looked_for() -> None:
    with pytest.raises(NoRendezvousHost, match="2 nodes need a host") as caught:
        point_of({})
    for name in ("MASTER_ADDR", "SLURM_STEP_NODELIST", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                 "JOB_COMPLETION_INDEX", "POD_NAME"):  # fmt: skip
        assert name in str(caught.value)
    assert "--nodes hosts.txt" in caught.value.next_step


@given(
    st.dictionaries(
        st.sampled_from(sorted({*SLURM, *PYTORCH_JOB, *ELASTIC_JOB, *OPEN_MPI,
                                "JOB_COMPLETION_INDEX", "PMI_RANK", "PMI_SIZE"})),
        st.one_of(st.text(max_size=12), st.integers(-1, 1 << 40).map(str)),
    )
)  # fmt: skip
def test_any_environment_gives_a_point_or_says_what_to_do(environ: dict[str, str]) -> None:
    try:
        said = point_of(environ).endpoint
    except UsageProblem as error:
        said = f"{error.next_step}:0"
    assert re.fullmatch(r".+:[0-9]+", said, re.DOTALL)
