"""What is found out becomes torchrun's options, and what was typed stays."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from relkit.commands.launch import launch
from relkit.commands.launch_parts.peer_options import meet
from relkit.commands.launch_parts.torchrun_command import own_options
from relkit.hosts import read_nodes
from relkit.launch.options import split
from relkit.launch.peers.find import NodeFacts
from relkit.launch.peers.join import join_peers, slurm_address
from relkit.launch.peers.rendezvous_host import NoRendezvousHost

OWN = own_options(launch.params)
FACTS = NodeFacts(lambda: "host", lambda name: name)
STEP = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "1",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_NODEID": "0",
}


def joined(line: list[str], nodes: str | None = None, **environ: str) -> dict[str, object]:
    return joined_with_spares(0, line, nodes, **environ)


def joined_with_spares(
    spares: int, line: list[str], nodes: str | None = None, **environ: str
) -> dict[str, object]:
    options = split(line, OWN).torchrun
    known = None if nodes is None else read_nodes(nodes)
    join_peers(options, known, environ, FACTS, spares)
    return vars(options)


def test_a_slurm_step() -> None:
    options = joined(["--nnodes", "2", "t.py"], **STEP)
    assert (options["rdzv_backend"], options["rdzv_id"]) == ("c10d", "7.1")
    assert str(options["rdzv_endpoint"]).startswith("n1:2")
    assert options["rdzv_conf"] == "is_host=true"
    other = joined(["--nnodes", "2", "t.py"], **{**STEP, "SLURM_NODEID": "1"})
    assert other == {**options, "rdzv_conf": "is_host=false"}


def test_spares_are_counted_beside_the_nodes_of_the_job() -> None:
    step = {**STEP, "SLURM_STEP_NODELIST": "n[1-6]"}
    assert joined_with_spares(2, ["--nnodes", "4", "t.py"], **step)["nnodes"] == "4"
    assert joined_with_spares(2, ["t.py"], "a,b,c,d,e,f")["nnodes"] == "4"
    for line, nodes in ((["--nnodes", "6", "t.py"], None), (["--nnodes", "4", "t.py"], "a,b,c")):
        with pytest.raises(NoRendezvousHost, match="and --spares 2, but"):
            joined_with_spares(2, line, nodes, **step)
    with pytest.raises(NoRendezvousHost, match="--nnodes 1 and --spares 2, but"):
        joined_with_spares(2, ["t.py"], "a,b")


@pytest.mark.parametrize(
    ("nodes", "spares", "words"),
    [
        ("a", 0, "1 node meets at a:"),
        ("a,b", 0, "2 nodes meet at a:"),
        ("a,b", 1, "1 node and 1 spare meet at a:"),
        ("a,b,c,d,e", 2, "3 nodes and 2 spares meet at a:"),
    ],
)
def test_who_meets(nodes: str, spares: int, words: str) -> None:
    assert meet(split(["t.py"], OWN).torchrun, ["t.py"], nodes, spares).startswith(words)


def test_what_was_typed_stays() -> None:
    line = ["--nnodes", "1:2", "--rdzv-id", "mine", "--rdzv-conf", "timeout=9", "t.py"]
    options = joined(line, **STEP)
    assert options["nnodes"] == "1:2"
    assert options["rdzv_id"] == "mine"
    assert options["rdzv_conf"] == "timeout=9,is_host=true"
    line[4:6] = ["--rdzv-conf", "is_host=0"]
    assert joined(line, **STEP)["rdzv_conf"] == "is_host=0"


def test_a_list_of_nodes_says_how_many_there_are(tmp_path: Path) -> None:
    file = tmp_path / "hosts.txt"
    file.write_text("a address=10.0.0.1\nb\nc\n")
    options = joined(["t.py", "--lr", "1"], str(file))
    assert options["nnodes"] == "3"
    assert str(options["rdzv_endpoint"]).startswith("10.0.0.1:2")
    # torch finds out which host this is.
    assert options["rdzv_conf"] == ""
    assert joined(["t.py", "--lr", "1"], str(file)) == options
    # Another job on the same nodes meets elsewhere.
    another = joined(["t.py", "--lr", "2"], str(file))
    assert another["rdzv_id"] != options["rdzv_id"]
    assert another["rdzv_endpoint"] != options["rdzv_endpoint"]


def test_a_list_may_name_more_nodes_than_the_job_has_and_not_fewer() -> None:
    assert joined(["--nnodes", "2", "t.py"], "n[1-3]")["nnodes"] == "2"
    with pytest.raises(NoRendezvousHost, match="--nnodes 4, but --nodes has 3"):
        joined(["--nnodes", "4", "t.py"], "n[1-3]")


def scontrol(folder: Path, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "scontrol"
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(folder))


def test_a_node_is_called_as_slurm_calls_it_where_that_resolves() -> None:
    assert slurm_address("127.0.0.1") == "127.0.0.1"


def test_otherwise_slurm_is_asked_for_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol(tmp_path, "NodeName=n1 Arch=x NodeAddr=10.9.8.7 NodeHostName=n1", monkeypatch)
    assert slurm_address("n1.invalid") == "10.9.8.7"


@pytest.mark.parametrize("says", ["", "NodeName=n1 NodeAddr=n1.invalid"])
def test_a_node_that_cannot_be_reached_is_named(
    says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol(tmp_path, says, monkeypatch)
    with pytest.raises(NoRendezvousHost, match=r"n1\.invalid cannot be reached") as caught:
        slurm_address("n1.invalid")
    assert caught.value.next_step
