"""relkit linkcheck on a stand-in for mxom-client (this is not the vendor's tool)."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from relkit.cli import run
from tests.terminal import drawn_on
from tests.unit.linkcheck.link_standin import StandIn, faulty_socket, make_standin


@dataclass(frozen=True)
class Ran:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """The command sets a handler for the life of its process, which here is pytest's."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def relkit(*arguments: str) -> Ran:
    """The whole command, in this process: only its tools are processes of their own."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(["linkcheck", *arguments])
    return Ran(code, out.getvalue(), err.getvalue())


def document_of(child: Ran) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(child.stdout)
    return document


def is_gone(pid: int) -> bool:
    """Ended; whoever adopted it may not have reaped it yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def ids(document: dict[str, Any]) -> list[str]:
    return [finding["id"] for finding in document["findings"]]


def test_a_healthy_host_passes_and_every_link_was_measured_both_ways(tmp_path: Path) -> None:
    standin = make_standin(tmp_path, {})
    child = relkit(*standin.options(), "--json")
    assert child.returncode == 0, child.stderr
    document = document_of(child)
    assert document["schema"] == "relkit.linkcheck/1"
    assert document["verdict"] == {"node": "ok", "links": [], "sockets": [], "boxes": []}
    assert document["channels"] == {"good": 4, "total": 4, "minimum": 2}
    assert ids(document) == ["RK-LNK-002"]
    # Sockets 0:1 2:4 3:5 6:7 are GPUs 7:6 5:3 4:2 1:0 here; sequential, so the order is the order.
    pairs = ["76", "67", "53", "35", "42", "24", "10", "01"]
    assert ["".join(ends) for ends in standin.calls()] == pairs
    assert standin.arguments()[0] == ["-l", "7", "-p", "6", "-t", "1", "-c", "-w", "1"]


def test_a_bad_gpu_is_told_from_its_peer_and_the_host_still_passes(tmp_path: Path) -> None:
    standin = make_standin(tmp_path, faulty_socket(3))
    child = relkit(*standin.options(), "--json")
    document = document_of(child)
    assert child.returncode == 0
    assert document["status"] == "warn"
    assert document["verdict"] == {"node": "ok", "links": [[2, 4]], "sockets": [4], "boxes": []}
    assert ids(document) == ["RK-LNK-002", "RK-LNK-003", "RK-LNK-006"]
    table = relkit(*standin.options())
    assert "WARN  RK-LNK-003  link 2 (GPU 5) - 4 (GPU 3) is slow" in table.stdout
    assert "RK-LNK-006  socket 4 (GPU 3) is at fault" in table.stdout


def test_too_few_good_links_fail_the_host(tmp_path: Path) -> None:
    ways = {**faulty_socket(3), **faulty_socket(4), **faulty_socket(1, {"exits": 7})}
    standin = make_standin(tmp_path, ways)
    child = relkit(*standin.options(), "--json")
    document = document_of(child)
    assert child.returncode == 1
    assert document["verdict"]["node"] == "fail"
    assert document["verdict"]["links"] == [[2, 4], [3, 5], [6, 7]]
    assert document["channels"]["good"] == 1
    assert "RK-LNK-004" in ids(document)


def test_a_hanging_tool_is_ended_with_its_helper_and_costs_its_timeout(tmp_path: Path) -> None:
    standin = make_standin(tmp_path, {"5>3": "hang"})
    child = relkit(*standin.options(), "--json", "--timeout", "6")
    document = document_of(child)
    assert document["states"]["2:4"] == "lost"
    rows = {(m["source"], m["target"]): m for m in document["measurements"]}
    assert rows[2, 4]["failure"] == "ran out of time"
    assert rows[4, 2]["bandwidth_mb_s"] == 12000.0
    assert is_gone(standin.helper_pid())


def test_concurrent_measures_all_links_at_one_time(tmp_path: Path) -> None:
    standin = make_standin(tmp_path, {}, others="meet")
    child = relkit(*standin.options(), "--concurrent", "--json", "--timeout", "20")
    assert child.returncode == 0, child.stdout
    assert document_of(child)["channels"]["good"] == 4


@pytest.mark.parametrize(
    ("prints", "state"),
    [
        ("", "unknown"),
        ("bandwidth: \xff\xfe\x00 MB/s", "unknown"),
        ("bandwidth:nanMB/s", "unknown"),
        ("bandwidth:" + "9" * 5000 + "MB/s", "unknown"),
        ("bandwidth:99999999999999999MB/s", "unknown"),
        ("bandwidth:-12000.0MB/s", "unknown"),
        ("bandwidth:12,000.5MB/s", "unknown"),
        ("bandwidth:12000.0", "unknown"),
        ("\x1b[2J\x1b]0;owned\x07", "unknown"),
        ("bandwidth:12000MB/s", "good"),
        ("Bandwidth = 12.5 GB/s", "good"),
        ("bandwidth:9999.99MB/s", "slow"),
        ("bandwidth:10000.00MB/s", "good"),
    ],
)
def test_what_the_tool_may_print(tmp_path: Path, prints: str, state: str) -> None:
    standin = make_standin(tmp_path, {"5>3": {"prints": prints}})
    child = relkit(*standin.options(), "--json", "--box-pairs", "2:4", "--min-channels", "1")
    assert document_of(child)["states"] == {"2:4": state}, child.stdout
    assert child.returncode == {"good": 0, "unknown": 3, "slow": 1}[state]
    assert "\x1b" not in relkit(*standin.options(), "2:4", "--min-channels", "1").stdout


def test_a_tool_that_never_stops_printing_is_stopped(tmp_path: Path) -> None:
    standin = make_standin(tmp_path, {"5>3": "flood"})
    child = relkit(*standin.options(), "--json", "--timeout", "30")
    document = document_of(child)
    assert document["states"]["2:4"] == "unknown"
    assert document["verdict"]["node"] == "ok"


def test_unknown_sockets_are_lost_links_and_not_a_crash(tmp_path: Path) -> None:
    standin = make_standin(tmp_path, {}, sockets={0: 0, 1: 1, 2: 2, 3: 3})
    document = document_of(relkit(*standin.options(), "--json", "--box-pairs", "0:1 2:3 4:9"))
    assert document["states"] == {"0:1": "good", "2:3": "good", "4:9": "lost"}
    assert document["verdict"]["sockets"] == [4, 9]
    assert document["verdict"]["node"] == "ok"


def test_a_socket_that_two_gpus_claim_is_never_measured(tmp_path: Path) -> None:
    standin = make_standin(tmp_path, {})
    (standin.layout / "nodes" / "2" / "properties").write_text("mgpu_id 4\n")
    document = document_of(relkit(*standin.options(), "--json"))
    # GPU 0 was at socket 7, and now says 4, where GPU 3 is.
    assert document["claims"] == {"4": [0, 3]}
    assert document["states"] == {"0:1": "good", "2:4": "lost", "3:5": "good", "6:7": "lost"}
    assert not {"0", "3"} & {end for ends in standin.calls() for end in ends}


def test_without_hardware_it_could_not_tell_and_says_what_it_looked_for(tmp_path: Path) -> None:
    layout, tool = tmp_path / "layout", tmp_path / "no-such-tool"
    options = ["--provider", "metax", "--layout", str(layout), "--tool", str(tool)]
    child = relkit(*options, "--json")
    document = document_of(child)
    assert child.returncode == 3
    assert ids(document) == ["RK-LNK-001"]
    assert document["looked_for"] == [
        f"num_cpu_nodes in {layout}/properties",
        f"an executable {tool}",
    ]
    text = relkit(*options).stdout
    assert text.startswith("UNKNOWN  RK-LNK-001  could not tell: no MetaX switch box layout")
    assert f"not found: an executable {tool}" in text


def test_the_tool_is_found_by_the_original_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standin = make_standin(tmp_path, {})
    monkeypatch.setenv("SWITCHBOX_CHECK_TOOL_PATH", str(standin.tool))
    child = relkit("--layout", str(standin.layout))
    assert child.returncode == 0, child.stdout
    other = tmp_path / "other"
    other.mkdir()
    slow = make_standin(other, {}, others=1.0)
    child = relkit("--layout", str(standin.layout), "--tool", str(slow.tool))
    assert child.returncode == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--box-pairs", "0:1 2:4 3:5 6:7"],
        ["--box_pairs", "0:1,2:4,3:5,6:7"],
        ["--box-pairs", "0:1", "2:4", "3:5", "6:7"],
        ["--box-pairs", "0:1", "--box-pairs", "2:4 3:5 6:7"],
        ["--min_bandwidth", "10000", "--min_channels", "2"],
    ],
)
def test_all_spellings_of_the_guide_mean_the_same(tmp_path: Path, arguments: list[str]) -> None:
    standin = make_standin(tmp_path, {})
    document = document_of(relkit(*standin.options(), "--json", *arguments))
    assert document["pairs"] == [[0, 1], [2, 4], [3, 5], [6, 7]]


@pytest.mark.parametrize(
    "bound",
    [
        ["--min-bandwidth-gbps", "98.76536"],
        ["--min-bandwidth", "12345.67"],
        ["--min_bandwidth", "12345.67"],
    ],
)
def test_exactly_the_minimum_is_good_in_either_unit(tmp_path: Path, bound: list[str]) -> None:
    standin = make_standin(tmp_path, {}, others=12345.67)
    child = relkit(*standin.options(), "--json", *bound)
    document = document_of(child)
    assert set(document["states"].values()) == {"good"}
    assert document["min_bandwidth_mb_s"] == 12345.67
    assert document["min_bandwidth_gbps"] == 98.76536
    above = relkit(*standin.options(), "--json", "--min-bandwidth-gbps", "98.7654")
    assert set(document_of(above)["states"].values()) == {"slow"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--box-pairs", "0-1"],
        ["--box-pairs", "0:1:2"],
        ["--box-pairs", "-1:2"],
        ["--box-pairs", "a:b"],
        ["--box-pairs", "3:3"],
        ["--box-pairs", "0:1 1:0"],
        ["--box-pairs", " "],
        ["--box-pairs", "0:1"],
        ["--box-pairs", "0:1 1:2", "--concurrent"],
        ["--box-pairs", "99999999999999999999:1 2:3"],
        ["--min-bandwidth-gbps", "nan"],
        ["--min-bandwidth-gbps", "80", "--min-bandwidth", "10000"],
        ["--min-bandwidth-gbps", "-1"],
        ["--min-channels", "0"],
        ["--min-channels", "5"],
        ["--timeout", "inf"],
        ["--provider", "replay"],
        ["--provider", "nosuch"],
    ],
)
def test_bad_options_are_usage_and_run_nothing(tmp_path: Path, arguments: list[str]) -> None:
    standin = make_standin(tmp_path, {})
    child = relkit(*standin.options(), *arguments)
    assert child.returncode == 2, child.stderr
    assert child.stdout == ""
    assert not (tmp_path / "calls").exists()


def test_a_report_is_judged_again_with_another_bound(tmp_path: Path) -> None:
    standin = make_standin(tmp_path, faulty_socket(3))
    saved = tmp_path / "links.json"
    assert relkit(*standin.options(), "--json", "-o", str(saved)).returncode == 0
    calls = len(standin.calls())
    again = document_of(relkit("--replay", str(saved), "--json"))
    first = json.loads(saved.read_text())
    assert again["provider"] == "replay"
    assert (again["verdict"], again["states"]) == (first["verdict"], first["states"])
    assert document_of(relkit("--replay", str(saved), "--json", "--min-bandwidth-gbps", "4"))[
        "verdict"
    ] == {"node": "ok", "links": [], "sockets": [], "boxes": []}
    assert relkit("--replay", str(saved), "--min-bandwidth-gbps", "160").returncode == 1
    assert relkit("--replay", str(saved), "--box-pairs", "0:3 1:2").returncode == 3
    assert len(standin.calls()) == calls


def test_a_progress_bar_is_drawn_on_a_terminal_only(tmp_path: Path) -> None:
    standin: StandIn = make_standin(tmp_path, {})
    assert relkit(*standin.options()).stderr == ""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "relkit", "linkcheck", *standin.options(), "--json"]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment) as child:
        os.close(theirs)
        drawn = drawn_on(ours)
        assert child.stdout is not None
        assert json.loads(child.stdout.read())["status"] == "ok"
    assert b"%" in drawn


@pytest.mark.parametrize("concurrent", [(), ("--concurrent", "--timeout", "60")])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_no_tool_behind(
    tmp_path: Path, number: signal.Signals, code: int, concurrent: tuple[str, ...]
) -> None:
    standin = make_standin(tmp_path, {"7>6": "hang"})
    command = [sys.executable, "-m", "relkit", "linkcheck", *standin.options(), *concurrent]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        deadline = time.monotonic() + 40
        while not (tmp_path / "helper").exists() or not (tmp_path / "helper").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        began = time.monotonic()
        child.send_signal(number)
        child.communicate(timeout=20)
    # A tenth of it, where nobody else uses the machine.
    assert time.monotonic() - began < 5
    assert child.returncode == code
    assert is_gone(standin.helper_pid())
    assert not [
        p
        for p in psutil.process_iter(["cmdline"])
        if str(standin.tool) in (p.info["cmdline"] or [])
    ]
