"""The agent's operations for the network check: facts, listen, probe, compute, end."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from relkit.errors import RelkitError, UsageProblem
from relkit.fleet.agent import Handler, Request
from relkit.net.interface import NoRoute, Route, UnknownHost, resolve, route_to
from relkit.net.listener import Listener
from relkit.net.operator_secret import derive
from relkit.netcheck.measure.fabric import SysfsFabric, job_settings
from relkit.netcheck.measure.probes.base import Plan, Probe, ProbeFailed
from relkit.netcheck.measure.probes.choice import unable, write_unable
from relkit.netcheck.measure.probes.compute import measure_compute
from relkit.netcheck.measure.probes.rates import measure_rates
from relkit.netcheck.measure.probes.registry import open_probe
from relkit.netcheck.model import Edge, Failure, NodeFacts

_MAX_PEERS = 64
_LISTEN_S = 60.0


class _Listeners:
    """The listeners on this node, by round.

    Args:
        key: see handlers.
    """

    def __init__(self, key: bytes = b"") -> None:
        self._key = key
        self._lock = threading.Lock()
        self._listeners: dict[int, Listener] = {}
        self._unauthenticated = 0

    def secret(self, fields: Mapping[str, Any]) -> bytes:
        """The round's secret."""
        sent = _secret(fields)
        return derive(self._key, "round", sent) if self._key else sent

    def open(self, address: str, round_number: int, secret: bytes, lifetime_s: float) -> Listener:
        """A new listener for this round; an earlier one of the round is closed."""
        with self._lock:
            over = [number for number, known in self._listeners.items() if known.over]
        for number in {round_number, *over}:
            self.close(number)
        listener = Listener(address, round_number, secret, lifetime_s=lifetime_s)
        with self._lock:
            self._listeners[round_number] = listener
        return listener

    def listener(self, round_number: int) -> Listener:
        """The listener of this round. Raises ProbeFailed if it has none."""
        with self._lock:
            listener = self._listeners.get(round_number)
        if listener is None:
            raise ProbeFailed(Failure.PROBE_ERROR, f"no listener in round {round_number}")
        return listener

    def close(self, round_number: int) -> None:
        """Close the round's listener, if there is one."""
        with self._lock:
            listener = self._listeners.pop(round_number, None)
        if listener is not None:
            listener.close()
            with self._lock:
                self._unauthenticated += listener.unauthenticated

    @property
    def unauthenticated(self) -> int:
        """Unauthenticated connections so far, over all rounds."""
        with self._lock:
            current = sum(listener.unauthenticated for listener in self._listeners.values())
            return self._unauthenticated + current


def handlers(key: bytes = b"") -> dict[str, Handler]:
    """The operations of one agent, which share its listeners.

    Args:
        key: that all agents have, and that is not sent; a round's secret then comes from both.
    """
    listeners = _Listeners(key)
    return {
        "facts": partial(_answer_facts, listeners),
        "listen": partial(_listen, listeners),
        "probe": partial(_probe, listeners),
        "compute": _compute,
        "rates": _rates,
        "end": partial(_end, listeners),
    }


def _listen(listeners: _Listeners, request: Request) -> Iterator[Mapping[str, Any]]:
    """Open the round's listener on the address that the peer will use."""
    fields = request.fields
    number = int(fields["round"])
    try:
        address = _listen_address(fields)
    except UnknownHost:
        raise
    except NoRoute as error:
        # This is a result: the pair has no connection.
        yield {"op": "error", "failure": Failure.NO_ROUTE.value, "detail": str(error)}
        return
    lifetime_s = min(max(float(fields.get("timeout_s", _LISTEN_S)), 1.0), 600.0)
    listener = listeners.open(address, number, listeners.secret(fields), lifetime_s)
    yield {"op": "listening", "round": number, "address": address, "port": listener.port}


def _probe(listeners: _Listeners, request: Request) -> Iterator[Mapping[str, Any]]:
    """Measure a pair from this end; the accepting end reports only a failure."""
    chosen = open_probe(str(request.fields.get("probe", "tcp")))
    plan = _plan(request, listeners.secret(request.fields))
    if str(request.fields.get("role")) == "connect":
        measured = chosen.connect(plan)
        for edge in measured.edges:
            yield _edge_message(edge, "connect", measured.extra)
        return
    try:
        _accept(chosen, plan, listeners)
    except ProbeFailed as error:
        edge = Edge(
            plan.node, plan.peer, plan.round, chosen.name,
            failure=error.failure, detail=str(error),
        )  # fmt: skip
        yield _edge_message(edge, "accept", {})


def _end(listeners: _Listeners, request: Request) -> Iterator[Mapping[str, Any]]:
    """Close the round's listener."""
    number = int(request.fields["round"])
    listeners.close(number)
    yield {"op": "ended", "round": number, "unauthenticated": listeners.unauthenticated}


def _answer_facts(listeners: _Listeners, request: Request) -> Iterator[Mapping[str, Any]]:
    """Facts about this node, the routes to its peers, and why it cannot run the probe, if so."""
    peers = [str(peer) for peer in request.fields.get("peers", ())]
    missing = open_probe(str(request.fields.get("probe", "tcp"))).missing()
    yield {
        "op": "facts",
        **_facts(request.node, peers, listeners.unauthenticated, request.fields.get("settings")),
        "missing": missing,
    }


def _accept(probe: Probe, plan: Plan, listeners: _Listeners) -> None:
    try:
        probe.accept(plan, listeners.listener(plan.round))
    finally:
        # A listener never outlives its round, even if the controller does not end it.
        listeners.close(plan.round)


def _compute(request: Request) -> Iterator[Mapping[str, Any]]:
    """A score for each device; never added to a network time."""
    time_s = float(request.fields.get("duration_s", 0.5))
    timeout_s = float(request.fields.get("timeout_s", 60.0))
    yield {"op": "compute", **measure_compute(time_s, timeout_s)}


def _rates(request: Request) -> Iterator[Mapping[str, Any]]:
    """How fast each device computes in its own time, round by round."""
    rounds = int(request.fields.get("rounds", 1))
    timeout_s = float(request.fields.get("timeout_s", 60.0))
    yield {"op": "rates", **measure_rates(rounds, timeout_s)}


def _secret(fields: Mapping[str, Any]) -> bytes:
    try:
        return bytes.fromhex(str(fields["secret"]))
    except ValueError as error:
        raise UsageProblem("the secret is not in hexadecimal") from error


def _listen_address(fields: Mapping[str, Any]) -> str:
    """Our address on the route to the peer; "address" only if no peer address is given."""
    if peer := str(fields.get("peer_address", "")):
        return route_to(peer).address
    if own := str(fields.get("address", "")):
        return resolve(own)
    raise UsageProblem("neither peer_address nor address says where to listen")


def _plan(request: Request, secret: bytes) -> Plan:
    fields = request.fields
    address = resolve(str(fields["address"])) if fields.get("address") else ""
    return Plan(
        round=int(fields["round"]),
        secret=secret,
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


def _facts(
    node: str, peers: Sequence[str], unauthenticated: int, settings: object
) -> dict[str, Any]:
    """NodeFacts of the route that leads to most peers, and all routes."""
    routes: dict[str, Route] = {}
    unreached: dict[str, str] = {}
    for peer in peers[:_MAX_PEERS]:
        try:
            routes[peer] = route_to(peer)
        except RelkitError as error:
            unreached[peer] = str(error)
    usual = Counter((way.interface, way.address) for way in routes.values()).most_common(1)
    main = next(
        (way for way in routes.values() if usual and (way.interface, way.address) == usual[0][0]),
        Route("", ""),
    )
    ports = SysfsFabric().ports()
    facts = NodeFacts(
        name=node,
        hostname=socket.gethostname(),
        address=main.address,
        detail="; ".join(unreached.values()),
        interface=main.interface,
        mtu=main.mtu,
        speed_mbps=main.speed_mbps,
        duplex=main.duplex,
        unauthenticated_connections=unauthenticated,
        ports=ports,
        unable=write_unable(unable(ports)),
        settings=job_settings(settings if isinstance(settings, Mapping) else {}),
    )
    plain = {
        peer: {
            "peer": way.peer, "address": way.address, "interface": way.interface,
            "speed_mbps": way.speed_mbps, "mtu": way.mtu, "loopback": way.loopback,
        }
        for peer, way in routes.items()
    }  # fmt: skip
    return {"facts": asdict(facts), "routes": plain, "unreached": unreached}
