"""The netcheck command with agents on this machine: output, bundles, bad input, interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from relkit.cli import cli

FAST = ("--via", "local", "--duration", "0.05", "--slow", "0.95")


def relkit(*line: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "relkit", "netcheck", *map(str, line)],
        input=given, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    plain = json.loads(done.stdout)
    assert isinstance(plain, dict)
    return plain


@pytest.mark.long
def test_a_check_its_bundle_and_a_second_judgement(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    done = relkit("--nodes", "-", *FAST, "--json", "-o", bundle, given="n[1-3]\n# none\n")
    report = document(done)
    assert report["schema"] == "relkit.netcheck/1"
    assert report["verdict"] == {"nodes": [], "links": [], "groups": []}, report["findings"]
    assert report["coverage"] == {"tested_links": 3, "possible_links": 3, "share": 1.0}
    assert [row["node"] for row in report["nodes"]] == ["n1", "n2", "n3"]
    assert done.returncode == 0
    assert done.stderr.count("wrote ") == 6
    assert {path.name for path in bundle.iterdir()} == {
        "check.json", "nodes.jsonl", "edges.jsonl", "report.json", "report.html", "graph.dot",
    }  # fmt: skip
    assert json.loads((bundle / "report.json").read_text())["verdict"] == report["verdict"]

    again = document(relkit("--from", bundle, "--slow", "0.95", "--json"))
    assert again["verdict"] == report["verdict"]
    assert again["edges"] == report["edges"]
    strict = relkit("--from", bundle, "--min-bandwidth-gbps", "1000000", "--json")
    assert strict.returncode in (1, 3)
    assert document(strict)["status"] in ("fail", "unknown")
    refused = relkit("--nodes", "n[1-2]", *FAST, "-o", bundle)
    assert refused.returncode == 2
    assert "--force" in refused.stderr


@pytest.mark.long
def test_several_sizes_are_kept_for_every_edge(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    sizes = [4096, 1 << 16, 1 << 20]
    given = ("--sizes", "1M,64K,4k,64KiB", "--json", "-o", bundle)
    report = document(relkit("--nodes", "a,b,c", *FAST, *given))
    assert [row["size_bytes"] for row in report["sizes"]] == sizes
    assert all(row["median_gbps"] > 0 for row in report["sizes"])
    assert len(report["edges_by_size"]) == report["edges"] == 6
    for edge in report["edges_by_size"]:
        assert [row["size_bytes"] for row in edge["by_size"]] == sizes
        assert all(
            row["bandwidth_gbps"] > 0 and 0 < row["latency_p50_us"] <= row["latency_p99_us"]
            for row in edge["by_size"]
        )
    saved = [json.loads(line) for line in (bundle / "edges.jsonl").read_text().splitlines()]
    assert [edge["by_size"] for edge in saved] == [e["by_size"] for e in report["edges_by_size"]]
    assert {edge["size_bytes"] for edge in saved} == {1 << 20}
    table = relkit("--from", bundle, "--slow", "0.95")
    (line,) = [line for line in table.stdout.splitlines() if "RK-NET-021" in line]
    assert all(f"{size} " in line for size in ("4K", "64K", "1M"))


def test_one_size_has_no_figures_by_size() -> None:
    report = document(relkit("--nodes", "a,b", *FAST, "--sizes", "256K", "--json"))
    assert not {"sizes", "edges_by_size"} & set(report)
    assert "RK-NET-021" not in {finding["id"] for finding in report["findings"]}


@pytest.mark.long
def test_jsonl_and_the_table_have_the_same_findings(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    table = relkit("--nodes", "a,b", *FAST, "-o", bundle)
    lines = relkit("--from", bundle, "--slow", "0.95", "--jsonl")
    ids = [json.loads(line)["id"] for line in lines.stdout.splitlines()]
    assert ids
    assert all(number in table.stdout for number in ids)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["--nodes", "a;reboot", "--via", "local"], "not a node name"),
        (["--nodes", "-oProxyCommand=x", "--via", "local"], ""),
        (["--nodes", "a,b", "--via", "local", "--mode", "groups"], "--topology"),
        (["--nodes", "a,b", "--slow", "2"], "--slow"),
        (["--nodes", "a,b", "--via", "local", "--sizes", "64Q"], "64K,1M,8M"),
        (["--nodes", "a,b", "--via", "local", "--sizes", "300M"], "1 to 256M"),
        (["--nodes", "a,b", "--via", "local", "--sizes", "1K,2K", "--probe", "ib"], "one message"),
        (["--nodes", "a", "-x", "a"], "no node is left"),
        ([], "--nodes"),
    ],
)
def test_bad_input_is_usage(line: list[str], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    done = relkit(*line)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("text", [None, "", "{}", "\x00"])
def test_what_is_no_bundle_is_said_in_two_lines(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "check.json").write_text(text)
    for option in ("--from", "--baseline"):
        line = [option, tmp_path, *(("--nodes", "a,b") if option == "--baseline" else ())]
        done = relkit(*line)
        assert done.returncode == 3
        assert done.stderr.startswith("relkit: ")
        assert len(done.stderr.splitlines()) == 2


def test_one_node_alone_could_not_be_told() -> None:
    done = relkit("--nodes", "a", *FAST, "--json")
    assert done.returncode == 3
    assert document(done)["status"] == "unknown"


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A check of four local agents that takes some seconds; ended with the test."""
    line = ["--nodes", "n[1-4]", "--via", "local", "--mode", "full", "--duration", "1", "--json"]
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        started = subprocess.Popen(
            [sys.executable, "-m", "relkit", "netcheck", *line, "--timeout", "6"],
            stdin=subprocess.DEVNULL, stdout=out, stderr=err,
        )  # fmt: skip
    yield started
    if started.poll() is None:
        started.kill()
        started.wait(10)


def agents(controller: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The four agents, once all of them carry test traffic."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        assert controller.poll() is None
        found = [child for child in psutil.Process(controller.pid).children() if busy(child)]
        if len(found) == 4:
            return found
        time.sleep(0.05)
    raise AssertionError("no test traffic was seen")


def busy(child: psutil.Process) -> bool:
    try:
        connected = any(c.status == psutil.CONN_ESTABLISHED for c in child.net_connections())
        return connected and "agent" in child.cmdline()
    except psutil.Error:
        return False


def test_ctrl_c_ends_the_agents_and_exits_130(
    controller: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    children = agents(controller)
    controller.send_signal(signal.SIGINT)
    assert controller.wait(20) == 130
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not alive
    assert b"Traceback" not in (tmp_path / "err").read_bytes()


def test_a_killed_controller_leaves_no_agent(controller: subprocess.Popen[bytes]) -> None:
    children = agents(controller)
    controller.kill()
    controller.wait(10)
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_an_agent_that_dies_or_stops_in_a_round_is_named(
    controller: subprocess.Popen[bytes], tmp_path: Path, how: signal.Signals
) -> None:
    victim = next(child for child in agents(controller) if "--name=n3" in child.cmdline())
    os.kill(victim.pid, how)
    assert controller.wait(55) == 1, (tmp_path / "err").read_text()
    report = json.loads((tmp_path / "out").read_text())
    assert "n3" in report["verdict"]["nodes"], report["findings"]
    assert next(row for row in report["nodes"] if row["node"] == "n3")["detail"]
    assert report["rounds"] >= 3


def test_the_command_shows_its_options() -> None:
    help_text = CliRunner().invoke(cli, ["netcheck", "--help"]).output
    for option in ("--nodes", "--exclude", "--via", "--mode", "--topology", "--from", "--baseline"):
        assert option in help_text


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for kubectl on PATH with four pods; the log of what it was asked."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = Path(__file__).parents[1] / "unit" / "fleet" / "kubectl_standin.py"
    (folder / "kubectl").write_text(f'#!/bin/sh\nexec {sys.executable} {program} "$@"\n')
    (folder / "kubectl").chmod(0o700)
    items = [
        {"metadata": {"name": f"trainer-{n}"}, "status": {"phase": phase, "podIP": f"127.0.0.{n}"}}
        for n, phase in enumerate(("Running", "Running", "Running", "Failed"), 1)
    ]
    (tmp_path / "pods.json").write_text(json.dumps({"items": items}))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("STANDIN_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("STANDIN_PODS", str(tmp_path / "pods.json"))
    return tmp_path / "log"


@pytest.mark.parametrize("nodes", ["app=trainer", "trainer-[1-3]"])
def test_pods_by_label_or_by_name_are_measured_at_their_addresses(
    kubectl: Path, nodes: str
) -> None:
    done = relkit(
        "--nodes", nodes, "--via", "kubectl", "--kubectl-args", "-n training -c worker",
        "--duration", "0.05", "--slow", "0.95", "--json",
    )  # fmt: skip
    report = document(done)
    assert report["coverage"]["tested_links"] == 3, report["findings"]
    assert [row["node"] for row in report["nodes"]] == ["trainer-1", "trainer-2", "trainer-3"]
    asked = kubectl.read_text()
    assert "get pods -n training" in asked
    assert "exec -i -n training -c worker trainer-2 --" in asked


def test_labels_that_no_pod_has_are_usage(kubectl: Path) -> None:
    done = relkit("--nodes", "app=nothing", "--via", "kubectl", "--json")
    assert done.returncode == 2
    assert "no pod has the labels" in done.stderr


def test_a_pod_can_be_left_out(kubectl: Path) -> None:
    done = relkit(
        "--nodes", "app=trainer", "-x", "trainer-2", "--via", "kubectl", "--duration", "0.05",
        "--slow", "0.95", "--json",
    )  # fmt: skip
    assert [row["node"] for row in document(done)["nodes"]] == ["trainer-1", "trainer-3"]


@pytest.mark.parametrize("option", ["--slow", "--min-bandwidth", "--max-latency", "--duration"])
@pytest.mark.parametrize("number", ["nan", "inf"])
def test_a_number_that_is_none_is_refused(option: str, number: str) -> None:
    done = CliRunner().invoke(cli, ["netcheck", "--nodes", "n[1-2]", option, number])
    assert done.exit_code == 2
    assert option in done.output
