"""The tcp probe: latency, and bandwidth each way and both ways, through plain sockets.

The connecting end leads. Its control connection carries JSON lines: "ping", then one "flow" for
each message size and direction. Each flow has its own data connections, so that data still queued
on a slow link is dropped (by a reset) before the next flow. The receiving end measures.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from relkit.errors import RelkitError
from relkit.net.handshake import CONTROL
from relkit.net.listener import Listener
from relkit.netcheck.measure.probes.base import Measured, Plan, ProbeFailed, guarded, probe_failure
from relkit.netcheck.measure.probes.tcp_flow import Flow, Received, labels
from relkit.netcheck.measure.probes.tcp_wire import PING_BYTES, Control, percentile
from relkit.netcheck.model import Edge, Failure, SizeStatistics
from relkit.netcheck.record import positive, read_failure

_CONNECT_S = 5.0
_PING_SHARE = 0.25
_MAX_PING_S = 0.5
# A message with a longer round trip is not timed: a slow link must not delay its round.
_MAX_TRIP_S = 1.0
# The streams of a flow connect one after the other, each within two round trips.
_JOIN_S = 10.0


class TcpProbe:
    """Needs nothing besides the network."""

    name = "tcp"

    def missing(self) -> str:
        """It can always run."""
        return ""

    def connect(self, plan: Plan) -> Measured:
        """Latency, each message size each way, and the last size both ways at once.

        With several sizes the round trip of each is measured as well.
        """
        return guarded(plan, self.name, _lead)

    def accept(self, plan: Plan, listener: Listener) -> None:
        """Serve the connecting end until it closes. Raises ProbeFailed."""
        until_s = time.monotonic() + plan.timeout_s
        try:
            control = Control(listener.take(CONTROL, plan.timeout_s), until_s)
        except TimeoutError as error:
            raise ProbeFailed(Failure.NO_ANSWER, str(error)) from error
        try:
            while order := control.receive():
                if order.get("do") == "ping":
                    size = int(order.get("size", PING_BYTES))
                    replace(plan, sizes=(size,))
                    control.send(ready=True)
                    control.pong(size)
                else:
                    _follow(order, plan, control, listener)
        except (OSError, ValueError, RelkitError) as error:
            raise probe_failure(error) from error
        finally:
            control.close()


def _follow(order: dict[str, Any], plan: Plan, control: Control, listener: Listener) -> None:
    """Do the accepting end's part of one flow, as ordered."""
    size, streams = int(order.get("size", 0)), int(order.get("streams", 0))
    phase, duration_s = int(order.get("phase", 0)), float(order.get("duration_s", 0))
    # Plan checks the bounds: the order comes from outside.
    replace(plan, sizes=(size,), streams=streams, duration_s=duration_s)
    incoming, outgoing = labels(phase, streams, str(order.get("ways")))
    with Flow(size) as flow:
        for label in incoming:
            flow.receive_on(listener.take(label, min(control.left_s, _JOIN_S)))
        for label in outgoing:
            flow.send_on(listener.take(label, min(control.left_s, _JOIN_S)))
        flow.start()
        control.send(go=True)
        if incoming:
            try:
                result = flow.window(duration_s)
                control.send(bytes=result.size_bytes, seconds=result.seconds, silent=result.silent)
            except ProbeFailed as error:
                control.send(failure=error.failure.value, detail=str(error))
        # This end keeps sending until the connecting end stops the flow.
        control.receive()


class _Leader:
    """The connecting end's view of both directions while they are being measured."""

    def __init__(self, plan: Plan, control: Control) -> None:
        self._plan, self._control = plan, control
        self._phase = 0
        size = plan.sizes[-1]
        self.out = Edge(plan.node, plan.peer, plan.round, "tcp", size)
        self.back = Edge(plan.peer, plan.node, plan.round, "tcp", size)
        self.by_size: list[dict[str, Any]] = []

    def all(self) -> None:
        """Every phase in turn. Raises OSError, ValueError or ProbeFailed."""
        self._ping()
        for size, seconds in self._plan.shares:
            out, _ = self._flow(size, seconds, "out")
            _, back = self._flow(size, seconds, "in")
            row = {"size_bytes": size, "out_gbps": _gbps(out), "in_gbps": _gbps(back)}
            self.by_size.append(row)
        self.out, self.back = _with_result(self.out, out), _with_result(self.back, back)
        if self._plan.both_ways and not self.out.failure.value and not self.back.failure.value:
            size, seconds = self._plan.shares[-1]
            out, back = self._flow(size, seconds, "both")
            self.out = replace(self.out, both_ways_gbps=_gbps(out))
            self.back = replace(self.back, both_ways_gbps=_gbps(back))
        if len(self._plan.sizes) > 1:
            self._each_size()

    def broke(self, failure: ProbeFailed) -> None:
        """Mark the directions that have no result yet as failed."""
        self.out, self.back = _marked(self.out, failure), _marked(self.back, failure)

    def _ping(self) -> None:
        p50, p99 = self._round_trip(PING_BYTES)
        self.out = replace(self.out, latency_p50_us=p50, latency_p99_us=p99)
        self.back = replace(self.back, latency_p50_us=p50, latency_p99_us=p99)

    def _each_size(self) -> None:
        """Round trips of every size: last, so that a deadline here costs no other result."""
        self._keep_sizes()
        for row in self.by_size:
            slowest_gbps = min(row["out_gbps"], row["in_gbps"])
            if 2 * row["size_bytes"] * 8 / 1e9 > _MAX_TRIP_S * slowest_gbps:
                continue
            p50, p99 = self._round_trip(row["size_bytes"])
            row.update(latency_p50_us=p50, latency_p99_us=p99)
            self._keep_sizes()

    def _keep_sizes(self) -> None:
        self.out = replace(self.out, by_size=_by_size(self.by_size, "out_gbps"))
        self.back = replace(self.back, by_size=_by_size(self.by_size, "in_gbps"))

    def _round_trip(self, size: int) -> tuple[float, float]:
        """Median and 99th percentile of messages of this size there and back, us."""
        self._control.send(do="ping", size=size)
        self._answer("ready")
        trips = self._control.ping(min(self._plan.duration_s * _PING_SHARE, _MAX_PING_S), size)
        ordered = sorted(trip * 1e6 for trip in trips)
        return round(percentile(ordered, 0.5), 1), round(percentile(ordered, 0.99), 1)

    def _flow(
        self, size: int, seconds: float, ways: str
    ) -> tuple[Received | ProbeFailed | None, Received | ProbeFailed | None]:
        """One flow's results at the far end and at this end; None if nothing was sent there."""
        plan, control = self._plan, self._control
        if control.left_s < seconds:
            raise ProbeFailed(Failure.DEADLINE, f"not finished within {plan.timeout_s:g} s")
        self._phase += 1
        outgoing, incoming = labels(self._phase, plan.streams, ways)
        control.send(
            do="flow", phase=self._phase, size=size, streams=plan.streams, ways=ways,
            duration_s=seconds,
        )  # fmt: skip
        far: Received | ProbeFailed | None = None
        near: Received | ProbeFailed | None = None
        with Flow(size) as flow:
            for label, use in (
                *((label, flow.send_on) for label in outgoing),
                *((label, flow.receive_on) for label in incoming),
            ):
                wait_s = min(control.left_s, _CONNECT_S)
                use(plan.open(label, wait_s))
            self._answer("go")
            flow.start()
            if incoming:
                try:
                    near = flow.window(seconds)
                except ProbeFailed as error:
                    near = error
            if outgoing:
                far = _far_result(control.receive())
            control.send(do="stop")
        return far, near

    def _answer(self, wanted: str) -> None:
        answer = self._control.receive()
        if not answer:
            raise ConnectionResetError("the other end closed the control connection")
        if wanted not in answer:
            raise ValueError(f"the other end sent {answer} instead of {wanted!r}")


def _lead(plan: Plan) -> Measured:
    until_s = time.monotonic() + plan.timeout_s
    control = Control(plan.open(CONTROL, _CONNECT_S), until_s)
    leader = _Leader(plan, control)
    try:
        leader.all()
    except (OSError, ValueError, ProbeFailed) as error:
        leader.broke(probe_failure(error))
    finally:
        control.close()
    return Measured((leader.out, leader.back))


def _by_size(rows: list[dict[str, Any]], way: str) -> tuple[SizeStatistics, ...]:
    return tuple(
        SizeStatistics(
            row["size_bytes"],
            row[way],
            row.get("latency_p50_us", 0.0),
            row.get("latency_p99_us", 0.0),
        )
        for row in rows
    )


def _far_result(answer: dict[str, Any]) -> Received | ProbeFailed:
    """The far end's result. Raises ValueError if it is none: the numbers come from outside."""
    if not answer:
        raise ConnectionResetError("the other end closed the control connection")
    if "failure" in answer:
        return ProbeFailed(read_failure(answer["failure"]), str(answer.get("detail", ""))[:200])
    size_bytes, seconds = positive(answer.get("bytes")), positive(answer.get("seconds"))
    if not size_bytes or not seconds:
        raise ValueError(f"the other end sent no result: {answer!s:.100}")
    return Received(int(size_bytes), seconds, int(positive(answer.get("silent"))))


def _gbps(result: Received | ProbeFailed | None) -> float:
    return round(result.gbps, 6) if isinstance(result, Received) else 0.0


def _with_result(edge: Edge, result: Received | ProbeFailed | None) -> Edge:
    if isinstance(result, ProbeFailed):
        return _marked(edge, result)
    silent = result.silent if result else 0
    detail = f"{silent} streams carried no data (is one of several paths broken?)" if silent else ""
    return replace(edge, bandwidth_gbps=_gbps(result), detail=detail)


def _marked(edge: Edge, failure: ProbeFailed) -> Edge:
    if edge.bandwidth_gbps:
        return replace(edge, detail=f"measured before it failed: {failure}")
    return replace(edge, failure=failure.failure, detail=str(failure))
