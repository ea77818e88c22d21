"""The ib probe: hand-made outputs of perftest, and stand-ins for its tools that really connect."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from relkit.net.listener import Listener
from relkit.netcheck.measure.probes.base import Measured, Plan, ProbeFailed
from relkit.netcheck.measure.probes.ib import IbProbe, read_bandwidth, read_latency
from relkit.netcheck.measure.probes.names import PROBES
from relkit.netcheck.measure.probes.registry import open_probe
from relkit.netcheck.model import Failure

DATA = Path(__file__).resolve().parents[2] / "data" / "perftest"
SECRET = bytes(range(32))
# A server waits for one client, as perftest does; a client is refused until the server is up.
STAND_IN = """#!{python}
import socket, sys
words = sys.argv[1:]
port = int(words[words.index("-p") + 1])
assert words[words.index("-d") + 1] == "mlx5_7", words
if words[-1].startswith("127."):
    try:
        socket.create_connection((words[-1], port), 5).close()
    except ConnectionRefusedError:
        sys.exit("Couldn't connect to " + words[-1])
else:
    server = socket.create_server(("127.0.0.1", port))
    server.settimeout(20)
    server.accept()
text = open({data!r}).read()
print(text.replace("197.43", "390.00") if "-b" in words else text)
sys.exit({code})
"""


def test_the_average_bandwidth() -> None:
    got = read_bandwidth((DATA / "ib_write_bw.txt").read_text())
    assert (got.size_bytes, got.gbps) == (1 << 20, 197.43)


def test_other_units() -> None:
    text = (DATA / "ib_write_bw.txt").read_text().replace("Gb/sec", "MiB/sec")
    assert read_bandwidth(text).gbps == pytest.approx(197.43 * 2**20 * 8 / 1e9)


def test_latencies_are_round_trips() -> None:
    got = read_latency((DATA / "ib_write_lat.txt").read_text())
    assert (got.p50_us, got.p99_us) == pytest.approx((2.10, 2.36))


@pytest.mark.parametrize(
    "text",
    ["", "\n---\n", "Couldn't connect to 10.0.0.2:18515", "#bytes x\nnot numbers", "#bytes\n1"],
)
def test_output_without_figures(text: str) -> None:
    for read in (read_bandwidth, read_latency):
        with pytest.raises(ValueError, match=r"."):
            read(text)


def test_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert IbProbe().missing() == ("perftest is not installed (no ib_write_bw and no ib_write_lat)")
    edges = IbProbe().connect(Plan(1, SECRET, "here", "there", "127.0.0.1", 1)).edges
    assert {edge.failure for edge in edges} == {Failure.PROBE_ERROR}
    assert "not installed" in edges[0].detail
    _tools(tmp_path)
    assert IbProbe(tmp_path).missing() == "no InfiniBand or RoCE device"


def _tools(folder: Path, code: int = 0) -> None:
    for name in ("ib_write_bw", "ib_write_lat"):
        tool = folder / name
        data = str(DATA / f"{name}.txt")
        tool.write_text(STAND_IN.format(python=sys.executable, data=data, code=code))
        tool.chmod(0o700)


def _pair(folder: Path, timeout_s: float = 40.0) -> tuple[Measured, list[ProbeFailed]]:
    (folder / "infiniband" / "mlx5_7").mkdir(parents=True)
    listener = Listener("127.0.0.1", 1, SECRET, lifetime_s=60)
    plan = Plan(1, SECRET, "here", "there", "127.0.0.1", listener.port, timeout_s=timeout_s)
    failures: list[ProbeFailed] = []

    def serve() -> None:
        try:
            IbProbe(folder).accept(replace(plan, node="there", peer="here"), listener)
        except ProbeFailed as error:
            failures.append(error)

    server = threading.Thread(target=serve)
    server.start()
    try:
        return IbProbe(folder).connect(plan), failures
    finally:
        server.join(60)
        listener.close()


def test_both_ends_run_their_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    _tools(tmp_path)
    measured, failures = _pair(tmp_path)
    assert not failures
    out, back = measured.edges
    assert (out.failure, out.detail) == (Failure.NONE, "")
    assert (out.source, back.source, out.probe) == ("here", "there", "ib")
    assert out.bandwidth_gbps == back.bandwidth_gbps == 197.43
    assert out.both_ways_gbps == 195.0
    assert (out.latency_p50_us, back.latency_p99_us) == (2.1, 2.36)


def test_tools_that_fail_are_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    _tools(tmp_path, code=1)
    for name in ("ib_write_bw", "ib_write_lat"):
        (tmp_path / name).write_text(f"#!{sys.executable}\nprint('Unable to open device')\n")
    measured, _ = _pair(tmp_path)
    assert {edge.failure for edge in measured.edges} == {Failure.PROBE_ERROR}
    assert "Unable to open device" in measured.edges[0].detail


def test_every_named_probe_can_be_opened() -> None:
    assert [open_probe(name).name for name in PROBES] == list(PROBES)
