"""Layout, the tool's figures, and the providers on stand-ins (none of them is the vendor's)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.errors import BadInputFile, NoLinkHardware, UsageProblem
from relkit.linkcheck.layout import read_layout
from relkit.linkcheck.metax import bandwidth_mb_s
from relkit.linkcheck.model import Counter, Failure, Pair
from relkit.linkcheck.nvbandwidth import TEST, parse_matrix
from relkit.linkcheck.nvidia import NvidiaProvider
from relkit.linkcheck.nvlink_counters import compare
from relkit.linkcheck.replay import ReplayProvider
from relkit.linkcheck.report import lane_findings
from relkit.linkcheck.run import open_provider
from relkit.linkcheck.tool import run_tool
from tests.unit.linkcheck.link_standin import make_layout


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        ("bandwidth:12345.67MB/s", 12345.67),
        ("bandwidth:12345MB/s", 12345.0),
        ("Bandwidth = 12345 MB/s", 12345.0),
        ("bandwidth: 12.5 GB/s", 12500.0),
        ("bandwidth: 1 GiB/s", 1073.741824),
        ("bandwidth: 80 Gb/s", 10000.0),
        ("bandwidth: 80 Gbit/s", 10000.0),
        ("bandwidth: 80 Gbps", 10000.0),
        ("bandwidth: 10 GBps", 10000.0),
        ("bandwidth: 5 mbytes/s", 5.0),
        ("noise\nbandwidth:1.5MB/s\nbandwidth:2.5MB/s", 1.5),
        ("bandwidth: 80 gb/s", None),
        ("bandwidth: 10", None),
        ("bandwidth: 10 MB", None),
        ("bandwidth: 10 MB/sx", None),
        ("bandwidth: 1,000 MB/s", None),
        ("bandwidth: inf MB/s", None),
        ("bandwidth: 1e4 MB/s", None),
        ("10 MB/s", None),
        ("", None),
    ],
)
def test_figures_and_units(printed: str, value: float | None) -> None:
    assert bandwidth_mb_s(printed) == (value if value is None else pytest.approx(value))


@given(st.text())
def test_no_output_breaks_the_reader(text: str) -> None:
    for printed in (text, f"bandwidth:{text}MB/s"):
        value = bandwidth_mb_s(printed)
        assert value is None or 0 <= value < 1e9


def test_the_layout_counts_gpus_after_the_cpu_nodes(tmp_path: Path) -> None:
    root = make_layout(tmp_path / "layout", {0: 1, 1: 0, 5: 2}, cpu_nodes=2)
    (root / "nodes" / "notes").write_text("not a node\n")
    (root / "nodes" / "9").mkdir()
    inventory = read_layout(root)
    assert inventory.gpu_of == {0: 1, 1: 0, 5: 2}
    assert inventory.notes == ("node 9 of the layout has no readable mgpu_id",)


def test_a_socket_that_two_gpus_claim_has_no_gpu(tmp_path: Path) -> None:
    claimed_twice = make_layout(tmp_path / "layout", {3: 0, 4: 1, 5: 2}, cpu_nodes=2)
    (claimed_twice / "nodes" / "3" / "properties").write_text("mgpu_id 3\n")
    inventory = read_layout(claimed_twice)
    assert inventory.gpu_of == {5: 2}
    assert inventory.claims == {3: (0, 1)}


def test_only_error_counters_that_grew_meanwhile_are_reported() -> None:
    counters = [Counter(0, 1, "CRC errors", 5, 5), Counter(0, 2, "CRC errors", 5, 6)]
    (finding,) = lane_findings(counters, "h")
    assert "lane 2" in finding.title
    assert "grew by 1" in finding.title


def test_a_counter_that_only_one_reading_has_is_left_out() -> None:
    before = {(0, 0, "active"): 1, (0, 1, "active"): 1}
    after = {(0, 1, "active"): 0, (0, 2, "active"): 1}
    assert compare(before, after) == (Counter(0, 1, "active", 1, 0),)


@pytest.mark.parametrize(
    "properties", ["", "num_cpu_nodes\n", "num_cpu_nodes x\n", "num_cpu_nodes -1\n", "\x00\xff"]
)
def test_a_layout_without_cpu_count_is_no_layout(tmp_path: Path, properties: str) -> None:
    root = make_layout(tmp_path / "layout", {0: 0})
    (root / "properties").write_text(properties)
    with pytest.raises(NoLinkHardware) as caught:
        read_layout(root)
    assert caught.value.looked_for == (f"num_cpu_nodes in {root}/properties",)


def test_a_layout_without_gpus_is_no_hardware(tmp_path: Path) -> None:
    with pytest.raises(NoLinkHardware, match="describes no GPU"):
        read_layout(make_layout(tmp_path / "layout", {}))


def nvbandwidth_json(rows: object, status: str = "Passed") -> str:
    case = {"name": TEST, "status": status, "bandwidth_matrix": rows}
    return "banner\n" + json.dumps({"nvbandwidth": {"testcases": [case]}})


def test_nvbandwidths_matrix_has_text_cells_in_gigabytes() -> None:
    rows = [["N/A", "373.22"], ["372.05", "N/A"]]
    assert parse_matrix(nvbandwidth_json(rows)) == {(0, 1): 373220.0, (1, 0): 372050.0}
    odd: list[object] = [["1", "nan", "inf", "-5", None, True, "9" * 400, {}], "row", None]
    assert parse_matrix(nvbandwidth_json(odd)) == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[]",
        "{",
        "null",
        "{}",
        "{" * 100_000,
        '{"a":' * 100_000,
        '{"nvbandwidth": []}',
        '{"nvbandwidth": {"testcases": {}}}',
        nvbandwidth_json([], "Error"),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_not_nvbandwidths_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_matrix(text)


def standin_tool(path: Path, output: str) -> Path:
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\n")
    path.chmod(0o700)
    return path


def gpus(folder: Path) -> Path:
    folder.mkdir()
    (folder / "nvidia0").touch()
    return folder


def test_nvidia_uses_nvbandwidth_where_it_is_installed(tmp_path: Path) -> None:
    rows = [["N/A", "300", "310"], ["305", "N/A", "N/A"], ["2", "3", "N/A"]]
    tool = standin_tool(tmp_path / "nvbandwidth", nvbandwidth_json(rows))
    provider = NvidiaProvider(str(tool), gpus(tmp_path / "dev"))
    inventory = provider.look(30.0)
    assert inventory.pairs == (Pair(0, 1),)
    assert inventory.gpu_of == {0: 0, 1: 1, 2: 2}
    assert provider.measure(0, 1, 1.0).bandwidth_mb_s == 300_000.0
    assert provider.measure(1, 2, 1.0).failure is Failure.TOOL_FAILED
    assert provider.counters(30.0) == ()


# What peer_copies.py needs of torch, without a GPU: a buffer is a list of its one value.
_TORCH = """
import os, time
uint8 = None
class Buffer(list):
    def copy_(self, other, non_blocking):
        if os.environ["STANDIN_COPY"] == "hang": time.sleep(600)
        if os.environ["STANDIN_COPY"] == "crash": os.abort()
        time.sleep(0.001); self[:] = other if os.environ["STANDIN_COPY"] == "good" else []
    def cpu(self): return self
def randint(*args, **kwargs): return Buffer([7])
def zeros(*args, **kwargs): return Buffer([0])
def equal(one, other): return one == other
class cuda:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 4)
    synchronize = staticmethod(lambda device: None)
    can_device_access_peer = staticmethod(lambda one, other: one != 3)
"""

_NVML = """
NVML_NVLINK_MAX_LINKS = 3
NVML_NVLINK_ERROR_DL_REPLAY = 0
import os, pathlib
class NVMLError(Exception): pass
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(gpu): return gpu
def nvmlDeviceGetNvLinkState(gpu, lane): return lane != 1
def nvmlDeviceGetNvLinkErrorCounter(gpu, lane, kind):
    if lane == 2: raise NVMLError("not supported")
    seen = pathlib.Path(os.environ["STANDIN_READS"])
    seen.write_text(seen.read_text() + "x" if seen.exists() else "x")
    return len(seen.read_text())
"""


@pytest.fixture
def standin_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "torch.py").write_text(_TORCH)
    (folder / "pynvml.py").write_text(_NVML)
    root = Path(__file__).resolve().parents[3]
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{root}")
    monkeypatch.setenv("STANDIN_COPY", "good")
    monkeypatch.setenv("STANDIN_READS", str(tmp_path / "reads"))
    return folder


def test_nvidia_copies_through_torch_in_a_child(
    tmp_path: Path, standin_torch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = NvidiaProvider("no-nvbandwidth-here", gpus(tmp_path / "dev"))
    inventory = provider.look(30.0)
    assert inventory.pairs == (Pair(0, 1), Pair(2, 3))
    good = provider.measure(0, 1, 30.0)
    assert good.failure is Failure.NONE
    assert good.bandwidth_mb_s > 0
    assert provider.measure(0, 3, 30.0).detail.startswith("through the host")
    for does, failure in (
        ("corrupt", Failure.TOOL_FAILED),
        ("crash", Failure.TOOL_FAILED),
        ("hang", Failure.TIMEOUT),
    ):
        monkeypatch.setenv("STANDIN_COPY", does)
        assert provider.measure(0, 1, 2.0 if does == "hang" else 30.0).failure is failure
    counters = provider.counters(30.0)
    assert {(c.lane, c.name) for c in counters} == {
        (0, "active"), (0, "replay errors"), (1, "active"), (1, "replay errors"), (2, "active"),
    }  # fmt: skip
    found = [(f.id, f.title) for f in lane_findings(counters, "host")]
    assert found[0][0] == "RK-LNK-010"
    assert "lane 1 of GPU 0 is down" in found[0][1]
    assert [id for id, _ in found[1:]] == ["RK-LNK-011", "RK-LNK-011"]


def test_gpus_without_nvlink_are_no_finding() -> None:
    assert lane_findings([Counter(0, lane, "active", 0, 0) for lane in range(4)], "host") == []


def test_a_file_named_torch_where_we_stand_is_not_taken_for_torch(
    tmp_path: Path, standin_torch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('the wrong torch')\n")
    monkeypatch.chdir(tmp_path)
    provider = NvidiaProvider("no-nvbandwidth-here", gpus(tmp_path / "dev"))
    assert len(provider.look(30.0).gpu_of) == 4


def test_one_gpu_has_no_link(tmp_path: Path, standin_torch: Path) -> None:
    text = (standin_torch / "torch.py").read_text().replace("lambda: 4", "lambda: 1")
    (standin_torch / "torch.py").write_text(text)
    with pytest.raises(NoLinkHardware, match="a link needs two"):
        NvidiaProvider("no-nvbandwidth-here", gpus(tmp_path / "dev")).look(30.0)


def test_auto_says_all_that_it_looked_for(tmp_path: Path) -> None:
    with pytest.raises(NoLinkHardware) as caught:
        open_provider("auto", tool="/no/tool", layout=tmp_path / "x", devices=tmp_path)
    assert len(caught.value.looked_for) == 3


def test_a_recording_goes_with_no_other_provider(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem):
        open_provider("metax", replay=tmp_path / "x")
    with pytest.raises(UsageProblem):
        open_provider("replay")


GOOD_ROW = {"source": 0, "target": 1, "bandwidth_mb_s": 5.0}


@pytest.mark.parametrize(
    "document",
    [
        "",
        "[]",
        "{" * 50_000,
        '{"a":' * 50_000,
        "{}",
        '{"sockets": {}, "measurements": []}',
        json.dumps({"sockets": [], "measurements": [GOOD_ROW]}),
        json.dumps({"sockets": {"x": 0}, "measurements": [GOOD_ROW]}),
        json.dumps({"sockets": {"0": -1}, "measurements": [GOOD_ROW]}),
        json.dumps({"sockets": {"0": 10**9}, "measurements": [GOOD_ROW]}),
        json.dumps({"sockets": {}, "measurements": [3]}),
        json.dumps({"sockets": {}, "measurements": {"a": 1}}),
        json.dumps({"sockets": {}, "measurements": [GOOD_ROW], "pairs": [[0, 0]]}),
        json.dumps({"sockets": {}, "measurements": [GOOD_ROW], "pairs": [[0]]}),
        json.dumps({"sockets": {}, "measurements": [GOOD_ROW], "pairs": 3}),
        json.dumps({"sockets": {}, "measurements": [GOOD_ROW], "claims": 3}),
        json.dumps({"sockets": {}, "measurements": [{**GOOD_ROW, "bandwidth_mb_s": -1}]}),
        json.dumps({"sockets": {}, "measurements": [{**GOOD_ROW, "bandwidth_mb_s": 1e999}]}),
        json.dumps({"sockets": {}, "measurements": [{**GOOD_ROW, "bandwidth_mb_s": None}]}),
        json.dumps({"sockets": {}, "measurements": [{**GOOD_ROW, "failure": "odd"}]}),
        json.dumps({"sockets": {}, "measurements": [{**GOOD_ROW, "failure": []}]}),
        json.dumps({"sockets": {}, "measurements": [{**GOOD_ROW, "source": True}]}),
        '{"sockets": {}, "measurements": [{"source": 0, "target": 1, "bandwidth_mb_s": NaN}]}',
        '{"sockets": {}, "measurements": [{"bandwidth_mb_s": ' + "9" * 5000 + "}]}",
    ],
    ids=lambda text: text[:60],
)
def test_hostile_recordings_are_refused(tmp_path: Path, document: str) -> None:
    path = tmp_path / "recording.json"
    path.write_text(document)
    with pytest.raises(BadInputFile):
        ReplayProvider(path).look(1.0)


def test_a_recording_that_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputFile):
        ReplayProvider(tmp_path).look(1.0)
    with pytest.raises(BadInputFile):
        ReplayProvider(tmp_path / "absent").look(1.0)


def test_a_tool_that_cannot_be_started_is_said(tmp_path: Path) -> None:
    script = tmp_path / "tool"
    script.write_text("not a program")
    assert run_tool([str(script)], 1.0).not_started
    script.chmod(0o700)
    assert run_tool([str(script)], 5.0).not_started
    assert run_tool([f"{script}\0"], 1.0).not_started


def test_a_tool_ended_by_a_signal_and_its_words() -> None:
    run = run_tool(["sh", "-c", "echo fine; echo '\033[31mbad\033[0m' >&2; kill -9 $$"], 10.0)
    assert run.exit_code == -9
    assert run.last_line == "?[31mbad?[0m"


def test_a_helper_that_holds_the_pipe_does_not_hold_us() -> None:
    script = "import subprocess, sys; subprocess.Popen(['sleep', '50']); print('bandwidth:1MB/s')"
    run = run_tool([sys.executable, "-c", script], 20.0)
    assert (run.exit_code, run.timed_out) == (0, False)
    assert "bandwidth" in run.output
