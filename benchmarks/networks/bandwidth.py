"""Bandwidth of relkit's tcp probe beside iperf3's, over the same path, in turn.

Two network namespaces joined by a veth pair where this runs as root, else the loopback; both
tools with the same number of streams and the same message size, the start of each run left out
by both (iperf3: 1 s, relkit: a fifth). A ratio of 1: the probe sees as much as iperf3.

    apt-get install iperf3 iproute2
    python benchmarks/networks/bandwidth.py
    python benchmarks/networks/bandwidth.py --streams 1 --rate 1gbit --rounds 3
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from relkit.net.listener import Listener
from relkit.netcheck.measure.probes.base import Plan
from relkit.netcheck.measure.probes.tcp import TcpProbe
from relkit.output import table

_TOOL_S = 10.0
_MARGIN_S = 20.0
_WAYS = ("out", "in", "both ways")


@dataclass(frozen=True, slots=True)
class Wire:
    """Where the two ends run.

    Args:
        near, far: prefixes of the commands at the connecting and at the accepting end.
        address: of the accepting end; name: what to call it.
    """

    near: tuple[str, ...]
    far: tuple[str, ...]
    address: str
    name: str


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=_TOOL_S, capture_output=True)


@contextlib.contextmanager
def namespaces(rate: str) -> Iterator[Wire]:
    """Two namespaces and a wire between them, limited to `rate` both ways where it is given."""
    names = tuple(f"relkit-bw-{os.getpid()}-{end}" for end in "ab")
    made: list[str] = []
    try:
        for name in names:
            _ip("netns", "add", name)
            made.append(name)
        _ip("link", "add", "wire", "netns", names[0], "type", "veth",
            "peer", "name", "wire", "netns", names[1])  # fmt: skip
        for number, name in enumerate(names, 1):
            _ip("-n", name, "addr", "add", f"10.78.0.{number}/24", "dev", "wire")
            _ip("-n", name, "link", "set", "wire", "up")
            if rate:
                line = ["tc", "-n", name, "qdisc", "add", "dev", "wire", "root", "tbf",
                        "rate", rate, "burst", "256kb", "latency", "50ms"]  # fmt: skip
                subprocess.run(line, check=True, timeout=_TOOL_S)
        near, far = (("ip", "netns", "exec", name) for name in names)
        yield Wire(near, far, "10.78.0.2", f"veth between namespaces {rate}".strip())
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False, timeout=_TOOL_S)


@contextlib.contextmanager
def _server(argv: Sequence[str], ready: str) -> Iterator[str]:
    """A child that is ended afterwards; yields its first line with `ready` in it."""
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = next((line for line in process.stdout if ready in line), "")
        if not line:
            raise SystemExit(f"{argv[0]} did not start")
        yield line
    finally:
        process.kill()
        process.communicate(timeout=_TOOL_S)


def iperf3(path: Wire, streams: int, size_bytes: int, duration_s: float) -> dict[str, float]:
    """Gbit/s as iperf3's receiving ends counted them: out, in, and the sum of both ways at once."""
    whole_s = max(round(duration_s), 1)
    found = {}
    for way, flag in zip(_WAYS, ((), ("-R",), ("--bidir",)), strict=True):
        serve = [*path.far, "iperf3", "-s", "-1", "--forceflush", "-B", path.address]
        with _server(serve, "listening"):
            line = [
                *path.near, "iperf3", "-c", path.address, "-J", "-P", str(streams),
                "-l", str(size_bytes), "-t", str(whole_s), "-O", "1", *flag,
            ]  # fmt: skip
            done = subprocess.run(
                line, check=True, timeout=whole_s + _MARGIN_S, capture_output=True, text=True
            )
        end = json.loads(done.stdout)["end"]
        sums = [one for name, one in end.items() if name.startswith("sum_received")]
        found[way] = sum(one["bits_per_second"] for one in sums) / 1e9
    return found


def relkit(path: Wire, streams: int, size_bytes: int, duration_s: float) -> dict[str, float]:
    """The same by the tcp probe, an end a process."""
    me = [sys.executable, str(Path(__file__).resolve())]
    common = ["--streams", str(streams), "--size", str(size_bytes), "--duration", str(duration_s)]
    os.environ["RELKIT_BENCHMARK_SECRET"] = secrets.token_hex(16)
    with _server([*path.far, *me, "--accept", path.address, *common], "port") as line:
        there = f"{path.address}:{line.split()[1]}"
        done = subprocess.run(
            [*path.near, *me, "--connect", there, *common],
            check=True, timeout=4 * duration_s + _MARGIN_S, capture_output=True, text=True,
        )  # fmt: skip
    plain: dict[str, float] = json.loads(done.stdout)
    return plain


def _plan(options: argparse.Namespace, address: str, port: int) -> Plan:
    secret = bytes.fromhex(os.environ["RELKIT_BENCHMARK_SECRET"])
    return Plan(
        0, secret, "near", "far", address, port, sizes=(options.size,), streams=options.streams,
        duration_s=options.duration, timeout_s=4 * options.duration + _MARGIN_S,
    )  # fmt: skip


def _accept(options: argparse.Namespace) -> None:
    plan = _plan(options, options.accept, 0)
    listener = Listener(options.accept, 0, plan.secret, lifetime_s=plan.timeout_s)
    print("port", listener.port, flush=True)
    TcpProbe().accept(plan, listener)
    listener.close()


def _connect(options: argparse.Namespace) -> None:
    address, _, port = options.connect.rpartition(":")
    out, back = TcpProbe().connect(_plan(options, address, int(port))).edges
    if out.failure.value or back.failure.value:
        raise SystemExit(f"{out.failure}: {out.detail} / {back.failure}: {back.detail}")
    both = out.both_ways_gbps + back.both_ways_gbps
    print(
        json.dumps(dict(zip(_WAYS, (out.bandwidth_gbps, back.bandwidth_gbps, both), strict=True)))
    )


def compare(options: argparse.Namespace) -> int:
    """Run both in turn and print medians and ratios."""
    for tool in ("iperf3", "ip"):
        if which(tool) is None:
            print(f"{tool} is not installed: apt-get install iperf3 iproute2", file=sys.stderr)
            return 3
    # The kernel grants a namespace to root only; the loopback needs no right.
    root = os.geteuid() == 0 and not options.loopback
    loopback = contextlib.nullcontext(Wire((), (), "127.0.0.1", "loopback"))
    readings: dict[str, list[dict[str, float]]] = {"iperf3": [], "relkit": []}
    with namespaces(options.rate) if root else loopback as path:
        for number in range(options.rounds):
            tools = (iperf3, relkit) if number % 2 == 0 else (relkit, iperf3)
            for run in tools:
                found = run(path, options.streams, options.size, options.duration)
                readings[run.__name__].append(found)
                print(number, run.__name__, found, file=sys.stderr)
        name = path.name
    rows, ratios = [], {}
    for way in _WAYS:
        theirs, ours = (statistics.median(r[way] for r in readings[t]) for t in readings)
        ratios[way] = ours / theirs
        rows.append([way, f"{theirs:.2f}", f"{ours:.2f}", f"{ratios[way]:.3f}"])
    print(f"{name}, {options.streams} streams, messages of {options.size} bytes, medians of "
          f"{options.rounds} rounds of {options.duration:g} s, Gbit/s")  # fmt: skip
    print(table(rows, ["way", "iperf3", "relkit", "ratio"]))
    return 0 if min(ratios.values()) >= options.least else 1


def main() -> int:
    """Parse the options; run one end, or the comparison."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--streams", type=int, default=4, help="connections each way")
    parser.add_argument("--size", type=int, default=128 << 10, help="message size, bytes")
    parser.add_argument("--duration", type=float, default=3.0, help="s for each way, at least 1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", default="", help="tc tbf rate of the wire, e.g. 1gbit")
    parser.add_argument("--loopback", action="store_true", help="also where this runs as root")
    parser.add_argument("--least", type=float, default=0.95, help="exit 1 below this ratio")
    parser.add_argument("--accept", metavar="ADDRESS", help=argparse.SUPPRESS)
    parser.add_argument("--connect", metavar="ADDRESS:PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.accept:
        _accept(options)
        return 0
    if options.connect:
        _connect(options)
        return 0
    return compare(options)


if __name__ == "__main__":
    sys.exit(main())
