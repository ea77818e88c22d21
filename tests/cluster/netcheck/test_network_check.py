"""`relkit launch --network-check` with real jobs: over loopback, and between network stacks."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relkit.errors import EXIT_CONVICTED
from relkit.netcheck.measure.schedule import quick
from tests.cluster.conftest import EXAMPLE, Start, Started
from tests.cluster.hosts import Hosts, some_hosts

pytestmark = [pytest.mark.job, pytest.mark.timeout(150)]

RATE_MBIT = 200.0
SLOW_MBIT = 20.0


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Three hosts of 200 Mbit/s each, the last of which sends and receives at a tenth of that."""
    with some_hosts(tmp_path, 3, rate_mbit=RATE_MBIT, sshd=False) as fleet:
        fleet.limit("h3", out_mbit=SLOW_MBIT, in_mbit=SLOW_MBIT)
        yield fleet


def on_hosts(
    start: Start, hosts: Hosts, folder: Path, nnodes: str, *options: str, store: str = ""
) -> list[Started]:
    """One launcher on each host; the first host serves the store, at `store` where given."""

    def launch(number: int) -> Started:
        host = hosts.hosts[number]
        # The last call is long enough for launchers that begin apart on a busy machine.
        is_host = int(number == 0)
        return start(
            "launch", "--nnodes", nnodes, "--rdzv-backend", "c10d",
            "--rdzv-id", f"netcheck-{os.getpid()}",
            "--rdzv-endpoint", f"{store or hosts.hosts[0].address}:29400",
            "--rdzv-conf", f"is_host={is_host},last_call_timeout=8",
            "--local-addr", host.address, "--timeline-path", folder / f"t{number}",
            "--network-check", *options, EXAMPLE, "--steps", "4",
            program=("ip", "netns", "exec", host.namespace, sys.executable, "-m", "relkit"),
            GLOO_SOCKET_IFNAME="eth0", RELKIT_NODE_NAME=host.name,
        )  # fmt: skip

    return [launch(number) for number in range(len(hosts.hosts))]


def reports(folder: Path) -> list[dict[str, Any]]:
    """netcheck.json of whichever node became node 0."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("t*/netcheck.json"))]


@pytest.mark.long
def test_a_healthy_job_trains_and_says_what_was_measured(
    start: Start, tmp_path: Path, free_port: int
) -> None:
    jobs = [
        start(
            "launch", "--nnodes", "2", "--node-rank", str(number), "--master-addr", "127.0.0.1",
            "--master-port", str(free_port), "--timeline-path", tmp_path / f"t{number}",
            "--network-check", EXAMPLE, "--steps", "4",
        )
        for number in range(2)
    ]  # fmt: skip
    first, second = (job.wait(100) for job in jobs)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "done: 4 steps" in first.out + second.out
    assert "network check: measuring 2 nodes" in first.err
    for done in (first, second):
        assert "network check: 2 nodes, no fault" in done.err
    report = json.loads((tmp_path / "t0" / "netcheck.json").read_text())
    assert report["verdict"] == {"nodes": [], "links": [], "groups": []}
    # What is in doubt on a busy machine is measured again, so often at most.
    assert 1 <= report["rounds"] <= quick(["h1", "h2"]).max_rounds
    assert report["edges"] == 2 * report["rounds"]
    assert not (tmp_path / "t1" / "netcheck.json").exists()


@pytest.mark.long
def test_pairs_are_measured_by_the_probe_that_is_asked_for(
    start: Start, tmp_path: Path, free_port: int
) -> None:
    jobs = [
        start(
            "launch", "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-id", f"gloo-{os.getpid()}",
            "--rdzv-endpoint", f"127.0.0.1:{free_port}", "--local-addr", "127.0.0.1",
            "--timeline-path", tmp_path / f"t{number}", "--network-check", "--network-probe",
            "gloo", EXAMPLE, "--steps", "4", GLOO_SOCKET_IFNAME="lo",
        )
        for number in range(2)
    ]  # fmt: skip
    done = [job.wait(130) for job in jobs]
    text = "".join(one.err for one in done)
    assert [one.code for one in done] == [0, 0], text
    assert text.count("network check: 2 nodes, no fault") == 2, text
    (report,) = reports(tmp_path)
    assert report["probe"] == "gloo"


@pytest.mark.long
def test_one_node_has_nothing_to_measure(start: Start, tmp_path: Path) -> None:
    done = start(
        "launch", "--timeline-path", tmp_path / "t", "--network-check", "--switchbox-check",
        EXAMPLE, "--steps", "2",
    ).wait()  # fmt: skip
    assert done.code == 0, done.err
    assert "network check: one node" in done.err
    assert "switchbox check: inconclusive" in done.err


@pytest.mark.long
def test_all_nodes_are_measured_again_before_a_restart(
    start: Start, tmp_path: Path, free_port: int
) -> None:
    jobs = [
        start(
            "launch", "--nnodes", "2", "--rdzv-backend", "c10d",
            "--rdzv-id", f"again-{os.getpid()}",
            "--rdzv-endpoint", f"127.0.0.1:{free_port}", "--local-addr", "127.0.0.1",
            "--max-restarts", "1", "--no-warm-standby", "--timeline-path", tmp_path / f"t{number}",
            "--inject", "crash:rank=1:step=2", "--network-check", EXAMPLE, "--steps", "4",
            # A key for each meeting: the check, its agents and the restart have to agree on it.
            **{"RELKIT_SECRET": "what only the operator knows"},
        )
        for number in range(2)
    ]  # fmt: skip
    done = [job.wait(120) for job in jobs]
    text = "".join(one.err for one in done)
    assert [one.code for one in done] == [0, 0], text
    assert text.count("measuring 2 nodes") == 2
    assert text.count("2 nodes, no fault") == 4


@pytest.mark.long
@pytest.mark.root
def test_a_straggler_leaves_and_the_others_train(
    start: Start, hosts: Hosts, tmp_path: Path
) -> None:
    done = [
        job.wait(130)
        for job in on_hosts(
            start, hosts, tmp_path, "2:3", "--exclude-straggler",
            "--on-bad-node", f"touch {tmp_path}/bad-{{node}}",
        )
    ]  # fmt: skip
    text = "\n".join(one.err for one in done)
    assert [one.code for one in done] == [0, 0, EXIT_CONVICTED], text
    assert [r["verdict"]["nodes"] for r in reports(tmp_path)] == [["h3"]], text
    assert [path.name for path in tmp_path.glob("bad-*")] == ["bad-h3"]
    assert "this node (h3) failed the network check" in done[2].err
    assert "all nodes passed the last check together; not measured again" in done[0].err
    assert "done: 4 steps" in done[0].out + done[1].out
    assert "Traceback" not in text


@pytest.mark.long
@pytest.mark.root
def test_a_node_whose_data_network_is_dead_leaves_and_the_others_train(
    start: Start, hosts: Hosts, tmp_path: Path
) -> None:
    hosts.limit("h3", out_mbit=RATE_MBIT, in_mbit=RATE_MBIT)
    # It still meets the others, over the network in which the store is.
    hosts.add_second_network()
    for other in ("h1", "h2"):
        hosts.cut_pair(other, "h3")
    store = hosts.second_address("h1")
    done = [job.wait(130) for job in on_hosts(start, hosts, tmp_path, "2:3", store=store)]
    text = "\n".join(one.err for one in done)
    assert [one.code for one in done] == [0, 0, EXIT_CONVICTED], text
    (report,) = reports(tmp_path)
    assert report["verdict"] == {"nodes": ["h3"], "links": [], "groups": []}, text
    assert [one["fault"] for one in report["diagnoses"]] == ["dead"]
    assert "this node (h3) failed the network check" in done[2].err
    assert "kubectl taint --overwrite nodes h3" in done[2].err
    assert "done: 4 steps" in done[0].out + done[1].out
    assert "Traceback" not in text


@pytest.mark.long
@pytest.mark.root
def test_a_straggler_only_makes_a_warning_where_it_may_stay(
    start: Start, hosts: Hosts, tmp_path: Path
) -> None:
    done = [job.wait(130) for job in on_hosts(start, hosts, tmp_path, "3")]
    text = "\n".join(one.err for one in done)
    assert [one.code for one in done] == [0, 0, 0], text
    assert [r["verdict"]["nodes"] for r in reports(tmp_path)] == [["h3"]], text
    assert all("h3 is slow" in one.err and "it stays" in one.err for one in done), text


@pytest.mark.long
@pytest.mark.root
def test_too_few_nodes_are_left(start: Start, hosts: Hosts, tmp_path: Path) -> None:
    done = [job.wait(130) for job in on_hosts(start, hosts, tmp_path, "3", "--exclude-straggler")]
    text = "\n".join(one.err for one in done)
    assert [one.code for one in done] == [1, 1, EXIT_CONVICTED], text
    assert all("2 of 3 nodes are left, and the job needs 3" in one.err for one in done[:2]), text
    assert "kubectl taint --overwrite nodes h3" in done[2].err
    assert "Traceback" not in text


@pytest.mark.long
@pytest.mark.root
def test_the_store_stays_until_all_know_that_its_node_leaves(
    start: Start, hosts: Hosts, tmp_path: Path
) -> None:
    hosts.limit("h3", out_mbit=RATE_MBIT, in_mbit=RATE_MBIT)
    hosts.limit("h1", out_mbit=SLOW_MBIT, in_mbit=SLOW_MBIT)
    done = [job.wait(130) for job in on_hosts(start, hosts, tmp_path, "2:3", "--exclude-straggler")]
    text = "\n".join(one.err for one in done)
    assert [one.code for one in done] == [EXIT_CONVICTED, 1, 1], text
    assert all("the rendezvous store is on a node that leaves" in one.err for one in done[1:]), text
    assert "Traceback" not in text


@pytest.mark.long
@pytest.mark.root
def test_the_topology_file_gives_out_the_ranks(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text("import os\nprint('rank', os.environ['RANK'])\n")
    with some_hosts(tmp_path, 3, sshd=False) as hosts:
        one, two, three = hosts.hosts
        network = tmp_path / "network.txt"
        # The second host is the master; the third shares its switch, the first does not.
        places = ((one, "s1"), (two, "s2"), (three, "s2"))
        network.write_text("".join(f"{switch} p {host.address}\n" for host, switch in places))
        jobs = [
            start(
                "launch", "--nnodes", "3", "--master-addr", two.address, "--topology", network,
                "--local-addr", host.address, "--timeline-path", tmp_path / "t", script,
                program=("ip", "netns", "exec", host.namespace, sys.executable, "-m", "relkit"),
            )
            for host in hosts.hosts
        ]  # fmt: skip
        done = [job.wait(100) for job in jobs]
    assert [job.out for job in done] == ["rank 2\n", "rank 0\n", "rank 1\n"], done
    assert "order of nodes: 10.77.0.2 10.77.0.3 10.77.0.1" in done[1].err
    assert "switch crossings between neighbours: 1 (file's order: " in done[1].err
