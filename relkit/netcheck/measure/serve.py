"""What an agent does for the network check: facts, listeners, probes, compute, and the end."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from relkit.errors import RelkitError, UsageProblem
from relkit.fleet.agent import Handler, Request
from relkit.net.interface import Route, resolve, route_to
from relkit.net.listener import Listener
from relkit.netcheck.measure.probes.base import Plan, Probe, ProbeFailed
from relkit.netcheck.measure.probes.compute import measure_compute
from relkit.netcheck.measure.probes.registry import open_probe
from relkit.netcheck.model import Edge, Failure, NodeFacts

_MAX_PEERS = 64
_LISTEN_S = 60.0


class _Rounds:
    """The listeners that live on this node, by round."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[int, Listener] = {}
        self._strangers = 0

    def open(self, address: str, round_number: int, secret: bytes, lifetime_s: float) -> Listener:
        """A listener for this round; one that it may have already is closed."""
        with self._lock:
            over = [number for number, one in self._listeners.items() if one.over]
        for number in {round_number, *over}:
            self.close(number)
        listener = Listener(address, round_number, secret, lifetime_s=lifetime_s)
        with self._lock:
            self._listeners[round_number] = listener
        return listener

    def listener(self, round_number: int) -> Listener:
        """Raises ProbeFailed where the round has none."""
        with self._lock:
            found = self._listeners.get(round_number)
        if found is None:
            raise ProbeFailed(Failure.PROBE_ERROR, f"nothing listens in round {round_number}")
        return found

    def close(self, round_number: int) -> None:
        """Close the round's listener, if there is one."""
        with self._lock:
            found = self._listeners.pop(round_number, None)
        if found is not None:
            found.close()
            with self._lock:
                self._strangers += found.strangers

    @property
    def strangers(self) -> int:
        """Connections that were dropped so far, over all rounds."""
        with self._lock:
            return self._strangers + sum(one.strangers for one in self._listeners.values())


def handlers() -> dict[str, Handler]:
    """The operations of one agent; listeners are shared between them and by nobody else."""
    rounds = _Rounds()

    def listen(request: Request) -> Iterator[Mapping[str, Any]]:
        """Open the round's listener on the address that the peer will use."""
        fields = request.fields
        number = int(fields["round"])
        address = _listen_address(fields)
        lifetime_s = min(max(float(fields.get("timeout_s", _LISTEN_S)), 1.0), 600.0)
        secret = _secret(fields)
        listener = rounds.open(address, number, secret, lifetime_s)
        yield {
            "op": "listening", "round": number, "address": address, "port": listener.port,
        }  # fmt: skip

    def probe(request: Request) -> Iterator[Mapping[str, Any]]:
        """Measure a pair from this end; the accepting end speaks up only where it failed."""
        chosen = open_probe(str(request.fields.get("probe", "tcp")))
        plan = _plan(request)
        if str(request.fields.get("role")) == "connect":
            measured = chosen.connect(plan)
            for edge in measured.edges:
                yield _edge_message(edge, "connect", measured.extra)
            return
        try:
            _accept(chosen, plan, rounds)
        except ProbeFailed as error:
            edge = Edge(
                plan.node, plan.peer, plan.round, chosen.name,
                failure=error.failure, detail=str(error),
            )  # fmt: skip
            yield _edge_message(edge, "accept", {})

    def end(request: Request) -> Iterator[Mapping[str, Any]]:
        """Close the round's listener."""
        number = int(request.fields["round"])
        rounds.close(number)
        yield {"op": "ended", "round": number, "strangers": rounds.strangers}

    def facts(request: Request) -> Iterator[Mapping[str, Any]]:
        """What this node is, the ways to its peers, and why it cannot do the probe, if so."""
        peers = [str(peer) for peer in request.fields.get("peers", ())]
        missing = open_probe(str(request.fields.get("probe", "tcp"))).missing()
        found = _facts(request.node, peers, rounds.strangers)
        yield {"op": "facts", **found, "missing": missing}

    return {"facts": facts, "listen": listen, "probe": probe, "compute": _compute, "end": end}


def _accept(probe: Probe, plan: Plan, rounds: _Rounds) -> None:
    try:
        probe.accept(plan, rounds.listener(plan.round))
    finally:
        # A listener never outlives its round, even where the controller forgets to end it.
        rounds.close(plan.round)


def _compute(request: Request) -> Iterator[Mapping[str, Any]]:
    """A score for each device, never added to a network time."""
    time_s = float(request.fields.get("duration_s", 0.5))
    timeout_s = float(request.fields.get("timeout_s", 60.0))
    yield {"op": "compute", **measure_compute(time_s, timeout_s)}


def _secret(fields: Mapping[str, Any]) -> bytes:
    try:
        return bytes.fromhex(str(fields["secret"]))
    except ValueError as error:
        raise UsageProblem("the secret is not in hexadecimal") from error


def _listen_address(fields: Mapping[str, Any]) -> str:
    """Our address on the way to the peer; "address" only where no peer address is given."""
    if peer := str(fields.get("peer_address", "")):
        return route_to(peer).address
    if own := str(fields.get("address", "")):
        return resolve(own)
    raise UsageProblem("neither peer_address nor address says where to listen")


def _plan(request: Request) -> Plan:
    fields = request.fields
    address = resolve(str(fields["address"])) if fields.get("address") else ""
    return Plan(
        round=int(fields["round"]),
        secret=_secret(fields),
        node=request.node,
        peer=str(fields["peer"]),
        address=address,
        port=int(fields.get("port", 0)),
        sizes=tuple(int(size) for size in fields.get("sizes", (1 << 20,))),
        streams=int(fields.get("streams", 4)),
        duration_s=float(fields.get("duration_s", 1.0)),
        both_ways=bool(fields.get("both_ways", True)),
        timeout_s=float(fields.get("timeout_s", 30.0)),
    )


def _edge_message(edge: Edge, side: str, extra: Mapping[str, Any]) -> dict[str, Any]:
    plain = asdict(edge)
    plain["failure"] = edge.failure.value
    return {"op": "edge", "round": edge.round, "side": side, "edge": plain, **extra}


def _facts(node: str, peers: Sequence[str], strangers: int) -> dict[str, Any]:
    """NodeFacts of the way that most peers are reached by, and every way."""
    ways: dict[str, Route] = {}
    unreached: dict[str, str] = {}
    for peer in peers[:_MAX_PEERS]:
        try:
            ways[peer] = route_to(peer)
        except RelkitError as error:
            unreached[peer] = str(error)
    usual = Counter((way.interface, way.address) for way in ways.values()).most_common(1)
    main = next(
        (way for way in ways.values() if usual and (way.interface, way.address) == usual[0][0]),
        Route("", ""),
    )
    found = NodeFacts(
        name=node,
        hostname=socket.gethostname(),
        address=main.address,
        detail="; ".join(unreached.values()),
        interface=main.interface,
        mtu=main.mtu,
        speed_mbps=main.speed_mbps,
        duplex=main.duplex,
        strangers=strangers,
    )
    routes = {
        peer: {
            "peer": way.peer, "address": way.address, "interface": way.interface,
            "speed_mbps": way.speed_mbps, "mtu": way.mtu, "loopback": way.loopback,
        }
        for peer, way in ways.items()
    }  # fmt: skip
    return {"facts": asdict(found), "routes": routes, "unreached": unreached}
