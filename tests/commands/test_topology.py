"""relkit topology sort: the order on stdout, the rest on stderr."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relkit.cli import run

NETWORK = "asw-0 psw-0 n0\nasw-1 psw-0 n1\nasw-0 psw-0 n2\nasw-1 psw-0 10.0.0.3\n"


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "network.txt"
    path.write_text(NETWORK)
    return path


def test_only_the_order_is_on_stdout(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topology", "sort", str(network)]) == 0
    said = capsys.readouterr()
    assert said.out == "n0\nn2\nn1\n10.0.0.3\n"
    assert "RK-TOP-001  4 nodes in order; 2 switch crossings saved" in said.err


def test_nodes_unknown_ones_and_addresses(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("n9\nn1\nn0\nn3 address=10.0.0.3\n")
    assert run(["topology", "sort", str(network), "--nodes", str(hosts), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "relkit.topology/1"
    assert document["order"] == ["n1", "n3", "n0", "n9"]
    assert document["unknown"] == ["n9"]
    assert document["crossings"]["saved"] == {"asw": 1, "psw": 0}
    assert [f["id"] for f in document["findings"]] == ["RK-TOP-001", "RK-TOP-002"]
    assert document["findings"][1]["nodes"] == "n9"


def test_node_sets_and_exclusion(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topology", "sort", str(network), "--nodes", "n[0-2]", "-x", "n0"]) == 0
    assert capsys.readouterr().out == "n1\nn2\n"
    assert run(["topology", "sort", str(network), "-x", "n[0-1]"]) == 0
    assert capsys.readouterr().out == "n2\n10.0.0.3\n"


def test_output_is_written_once(network: Path, tmp_path: Path) -> None:
    target = tmp_path / "order.txt"
    assert run(["topology", "sort", str(network), "-o", str(target)]) == 0
    assert target.read_text() == "n0\nn2\nn1\n10.0.0.3\n"
    assert run(["topology", "sort", str(network), "-o", str(target)]) == 2
    assert run(["topology", "sort", str(network), "-o", str(target), "--force"]) == 0


def test_a_bad_file_is_two_lines_and_exit_3(
    network: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network.write_text(NETWORK + "asw-0 psw-0\n")
    assert run(["topology", "sort", str(network)]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert "line 5 is not `asw psw node`" in said.err
    assert "next: Write one node a line" in said.err
