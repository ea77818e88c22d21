"""Numbers of nodes by a topology file, worked out on each node alone."""

from __future__ import annotations

import socket
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from relkit.cli import cli
from relkit.commands.launch import launch
from relkit.commands.launch_parts.network_options import order_ranks
from relkit.errors import UsageProblem
from relkit.launch.netcheck.node_order import number_in, order_nodes, own_names
from relkit.topology import parse

# Alternating switches, as a scheduler may give them out.
NETWORK = parse("s1 p a\ns2 p b\ns1 p c\ns2 p d\n")


def test_all_nodes_come_to_one_order_with_the_master_first() -> None:
    order = order_nodes(NETWORK, 4, "b")
    assert order.nodes == ("b", "d", "a", "c")
    assert (order.before.asw, order.after.asw) == (3, 1)
    numbers = [number_in(order, {node, "another-name"}) for node in "abcd"]
    assert numbers == [2, 0, 3, 1]


def test_files_that_do_not_fit_the_job() -> None:
    with pytest.raises(UsageProblem, match="4 nodes, and the job has 3"):
        order_nodes(NETWORK, 3, "a")
    with pytest.raises(UsageProblem, match=r"the master 10\.9\.9\.9"):
        order_nodes(NETWORK, 4, "10.9.9.9")
    order = order_nodes(NETWORK, 4, "a")
    with pytest.raises(UsageProblem, match="does not name this host"):
        number_in(order, {"x"})
    with pytest.raises(UsageProblem, match="as a, c"):
        number_in(order, {"a", "c"})


def test_this_hosts_names_are_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELKIT_NODE_NAME", "n7")
    found = own_names()
    assert {"n7", socket.gethostname()} <= found | {"localhost"}
    assert not {"localhost", "127.0.0.1", "::1"} & found


@pytest.mark.parametrize("address", ["10.8.0.7", "fd00::7"])
def test_a_pod_has_the_address_of_its_host_as_well(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("NODE_IP", address)
    network = parse(f"s1 p 10.8.0.6\ns2 p {address}\n")
    assert number_in(order_nodes(network, 2, "10.8.0.6"), own_names()) == 1


@pytest.mark.parametrize("text", ["", "127.0.0.1", "::1", "a-name", "10.8.0.7; rm", "*"])
def test_what_is_no_address_of_a_host_is_nobodys(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.delenv("NODE_IP", raising=False)
    without = own_names()
    monkeypatch.setenv("NODE_IP", text)
    assert own_names() == without


@pytest.mark.parametrize("text", ["", "\n\n", "# asw psw node\n", "\ufeff"])
@pytest.mark.parametrize("line", [["--master-addr", "a"], ["--rdzv-backend", "c10d"]])
def test_a_file_without_nodes_orders_nothing(tmp_path: Path, text: str, line: list[str]) -> None:
    file, said = tmp_path / "topology_config", list[str]()
    file.write_text(text)
    context = click.Context(launch, obj=None)
    words = ["--nnodes", "2", *line, "--topology", str(file), __file__]
    launch.parse_args(context, words)
    options, _ = context.meta["relkit.launch.torchrun"]
    before = options.node_rank
    assert order_ranks(context, options, said.append) is None
    assert options.node_rank == before
    assert said == [f"{file} names no node: ranks are given as without --topology"]


@pytest.mark.parametrize(
    "line",
    [
        ["--nnodes", "1:2", "--master-addr", "a"],
        ["--standalone"],
    ],
)
def test_where_no_nodes_meet(line: list[str], tmp_path: Path) -> None:
    file = tmp_path / "network.txt"
    file.write_text("s1 p a\ns2 p b\n")
    with pytest.raises(UsageProblem, match="needs nodes that meet"):
        CliRunner().invoke(
            cli, ["launch", "--topology", str(file), *line, __file__], catch_exceptions=False
        )
