"""The ib probe: perftest's ib_write_bw and ib_write_lat between the two ends, where installed.

perftest exchanges its queue pairs over a TCP port of its own, without authentication and on all
addresses; the port is open only while one run waits for the other end. The authenticated control
connection decides which end runs what, and on which port.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import which
from typing import Any

from relkit.net.handshake import CONTROL
from relkit.net.interface import NoRoute, route_to
from relkit.net.listener import Listener
from relkit.netcheck.measure.probes.base import Measured, Plan, ProbeFailed, guarded, probe_failure
from relkit.netcheck.measure.probes.tcp_wire import Control
from relkit.netcheck.model import Edge, Failure
from relkit.process.bounded_child import run_child

_TOOLS = ("ib_write_bw", "ib_write_lat")
_CONNECT_S = 5.0
# The other end's server opens its device before it listens, which takes a moment.
_TRIES_S = 5.0
_PAUSE_S = 0.2
_LATENCY_RUNS = 1000
_SYS_CLASS = Path("/sys/class")
_MIB_BITS = (1 << 20) * 8


class IbProbe:
    """RDMA writes through perftest.

    Args:
        sys_class: the kernel's folder of devices.
    """

    name = "ib"

    def __init__(self, sys_class: Path = _SYS_CLASS) -> None:
        self._sys_class = sys_class

    def missing(self) -> str:
        """The missing tools, else the missing device."""
        absent = [tool for tool in _TOOLS if which(tool) is None]
        if absent:
            return f"perftest is not installed (no {' and no '.join(absent)})"
        if not self._devices():
            return "no InfiniBand or RoCE device"
        return ""

    def connect(self, plan: Plan) -> Measured:
        """Latency, bandwidth out and in, and both ways at once."""
        return guarded(plan, self.name, self._lead)

    def accept(self, plan: Plan, listener: Listener) -> None:
        """Run what the connecting end asks for. Raises ProbeFailed."""
        self._need(plan)
        until_s = time.monotonic() + plan.timeout_s
        try:
            connection = listener.take(CONTROL, plan.timeout_s)
        except TimeoutError as error:
            raise ProbeFailed(Failure.NO_ANSWER, str(error)) from error
        end = _End(connection, self._device_to(connection), until_s)
        try:
            while order := end.control.receive():
                end.follow(order)
        except (OSError, ValueError) as error:
            raise probe_failure(error) from error
        finally:
            end.control.close()

    def _lead(self, plan: Plan) -> Measured:
        self._need(plan)
        until_s = time.monotonic() + plan.timeout_s
        connection = plan.open(CONTROL, _CONNECT_S)
        end = _End(connection, self._device_to(connection), until_s)
        size, streams = plan.sizes[-1], plan.streams
        seconds = max(round(plan.duration_s), 1)
        run = {"tool": "ib_write_bw", "size": size, "streams": streams, "seconds": seconds}
        try:
            trip = read_latency(end.to_peer({"tool": "ib_write_lat", "size": 8}))
            out = read_bandwidth(end.to_peer(run))
            back = read_bandwidth(end.from_peer(run))
            # Bidirectional runs report the sum of both directions.
            both = read_bandwidth(end.to_peer({**run, "both": True})) if plan.both_ways else None
        finally:
            end.control.close()
        return Measured(_edges(plan, trip, out, back, both))

    def _need(self, plan: Plan) -> None:
        if why := self.missing():
            raise ProbeFailed(Failure.PROBE_ERROR, f"{why} on {plan.node}")

    def _devices(self) -> list[str]:
        try:
            return sorted(path.name for path in (self._sys_class / "infiniband").iterdir())
        except OSError:
            return []

    def _device_to(self, connection: socket.socket) -> str:
        """The device behind the interface that leads to the peer; else the first one."""
        try:
            interface = route_to(connection.getpeername()[0]).interface
            behind = self._sys_class / "net" / interface / "device" / "infiniband"
            return min(path.name for path in behind.iterdir())
        except (OSError, NoRoute, ValueError):
            return self._devices()[0]


class _End:
    """One end of a series of perftest runs."""

    def __init__(self, connection: socket.socket, device: str, until_s: float) -> None:
        self.control = Control(connection, until_s)
        self._own, self._peer = connection.getsockname()[0], connection.getpeername()[0]
        self._device = device

    def to_peer(self, run: dict[str, Any]) -> str:
        """The peer serves, this end is the client: data flows to the peer."""
        self.control.send(do="serve", **run)
        port = int(self._answer("port")["port"])
        text = self._client(run, port)
        self._answer("served")
        return text

    def from_peer(self, run: dict[str, Any]) -> str:
        """This end serves, the peer is the client: data flows to this end."""
        port = self._free_port()
        self.control.send(do="client", port=port, **run)
        self._tool(run, port, ())
        return str(self._answer("text")["text"])

    def follow(self, order: dict[str, Any]) -> None:
        """Do what the other end asks for."""
        if order.get("tool") not in _TOOLS or order.get("do") not in ("serve", "client"):
            raise ValueError(f"no such order: {order}")
        if order["do"] == "client":
            self.control.send(text=self._client(order, int(order["port"])))
            return
        port = self._free_port()
        self.control.send(port=port)
        self._tool(order, port, ())
        self.control.send(served=True)

    def _client(self, run: dict[str, Any], port: int) -> str:
        end_s = time.monotonic() + min(_TRIES_S, self.control.left_s)
        while True:
            text, code = self._tool(run, port, (self._peer,))
            if code == 0 or time.monotonic() >= end_s:
                return text
            time.sleep(_PAUSE_S)

    def _tool(self, run: dict[str, Any], port: int, last: tuple[str, ...]) -> tuple[str, int]:
        path = which(run["tool"])
        if path is None:
            raise ValueError(f"{run['tool']} is no longer installed")
        line = [path, "-d", self._device, "-p", str(port), "-s", str(int(run["size"])), "-F"]
        if run["tool"] == "ib_write_lat":
            line += ["-n", str(_LATENCY_RUNS)]
        else:
            line += ["-D", str(int(run["seconds"])), "-q", str(int(run["streams"]))]
            line += ["--report_gbits", *(["-b"] if run.get("both") else [])]
        done = run_child([*line, *last], max(self.control.left_s, 0.1))
        if done.timed_out:
            raise TimeoutError(f"{run['tool']} did not end in time")
        return done.stdout.decode("utf-8", "replace")[-8000:] + done.stderr[-2000:], done.returncode

    def _answer(self, wanted: str) -> dict[str, Any]:
        answer = self.control.receive()
        if not answer:
            raise ConnectionResetError("the other end closed the control connection")
        if wanted not in answer:
            raise ValueError(f"the other end sent {answer} instead of {wanted!r}")
        return answer

    def _free_port(self) -> int:
        family = socket.AF_INET6 if ":" in self._own else socket.AF_INET
        with socket.create_server((self._own, 0), family=family) as free:
            return int(free.getsockname()[1])


def _edges(
    plan: Plan, trip: Latency, out: Bandwidth, back: Bandwidth, both: Bandwidth | None
) -> tuple[Edge, Edge]:
    each = round(both.gbps / 2, 4) if both else 0.0
    away = Edge(
        plan.node, plan.peer, plan.round, "ib", out.size_bytes, round(out.gbps, 4), each,
        round(trip.p50_us, 2), round(trip.p99_us, 2),
    )  # fmt: skip
    home = replace(away, source=plan.peer, target=plan.node, bandwidth_gbps=round(back.gbps, 4))
    return away, home


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Of ib_write_bw: message size, and the average in Gbit/s."""

    size_bytes: int
    gbps: float


@dataclass(frozen=True, slots=True)
class Latency:
    """Of ib_write_lat: round trips, us. perftest prints half of each."""

    p50_us: float
    p99_us: float


def read_bandwidth(text: str) -> Bandwidth:
    """The average of an ib_write_bw run. Raises ValueError if there is none."""
    header, row = _table(text)
    if len(row) < 4:
        raise ValueError(f"ib_write_bw printed {len(row)} columns, expected at least four")
    # Without --report_gbits the unit is called MB/sec or MiB/sec, and is 2**20 bytes in both.
    scale = 1.0 if "Gb/sec" in header else _MIB_BITS / 1e9
    return Bandwidth(int(row[0]), row[3] * scale)


def read_latency(text: str) -> Latency:
    """Median and 99th percentile of an ib_write_lat run. Raises ValueError if there is none."""
    header, row = _table(text)
    if "t_typical" not in header or "99%" not in header or len(row) < 8:
        raise ValueError("ib_write_lat printed no percentiles (was it run with -D?)")
    return Latency(2 * row[4], 2 * row[7])


def _table(text: str) -> tuple[str, list[float]]:
    header = ""
    for line in text.splitlines():
        if line.strip().startswith("#bytes"):
            header = line
        elif header and line.strip():
            return header, [float(word) for word in line.split()]
    raise ValueError(_complaint(text))


def _complaint(text: str) -> str:
    """An error with the last line that is not blank or a rule."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" -\t")]
    return f"no results: {lines[-1]}" if lines else "no output"
