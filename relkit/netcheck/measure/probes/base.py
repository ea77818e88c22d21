"""What all probes share: the plan of a measurement, its result, and the kinds of failure."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from relkit.errors import RelkitError, UsageProblem
from relkit.net.dial import dial
from relkit.net.handshake import Label
from relkit.net.interface import NoRoute
from relkit.net.listener import Listener
from relkit.netcheck.model import Edge, Failure

MIB = 1 << 20
_MAX_SIZE_BYTES = 256 * MIB
_MAX_STREAMS = 64
_MIN_DURATION_S, _MAX_DURATION_S = 0.05, 120.0
_MAX_TIMEOUT_S = 600.0
_UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)


class ProbeFailed(RelkitError):
    """A pair could not be measured.

    Args:
        failure: the kind; message: the raw reason.
    """

    next_step = "Look at the two hosts' addresses, firewalls and links."

    def __init__(self, failure: Failure, message: str) -> None:
        super().__init__(message)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class Plan:
    """One pair's part of one round, as seen from one of its two ends.

    Args:
        round: number of the round, from 0.
        secret: the run's, 16 bytes or more.
        node, peer: names of this end and of the other.
        address, port: where the accepting end listens.
        sizes: message sizes, bytes, 1 to 256 MiB; the last one gives the edge's bandwidth.
        streams: parallel connections each way, 1 to 64.
        duration_s: how long each direction is measured, all sizes together, 0.05 to 120.
        both_ways: also measure both directions at once.
        timeout_s: the whole probe's deadline, up to 600.
    """

    round: int
    secret: bytes = field(repr=False)
    node: str
    peer: str
    address: str
    port: int
    sizes: tuple[int, ...] = (MIB,)
    streams: int = 4
    duration_s: float = 1.0
    both_ways: bool = True
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if len(self.secret) < 16:
            raise UsageProblem("the run's secret is shorter than 16 bytes")
        if not self.sizes or not all(1 <= size <= _MAX_SIZE_BYTES for size in self.sizes):
            raise UsageProblem(f"message sizes must be 1 to {_MAX_SIZE_BYTES} bytes: {self.sizes}")
        if not 1 <= self.streams <= _MAX_STREAMS:
            raise UsageProblem(f"streams must be 1 to {_MAX_STREAMS}: {self.streams}")
        if not _MIN_DURATION_S <= self.duration_s <= _MAX_DURATION_S:
            raise UsageProblem(
                f"a probe takes {_MIN_DURATION_S} to {_MAX_DURATION_S} s: {self.duration_s}"
            )
        if not 0 < self.timeout_s <= _MAX_TIMEOUT_S:
            raise UsageProblem(f"a deadline is up to {_MAX_TIMEOUT_S} s: {self.timeout_s}")

    def open(self, label: Label, max_wait_s: float) -> socket.socket:
        """An authenticated connection to the accepting end.

        Raises:
            OSError, PermissionError: see dial.
            ProbeFailed: there is no route.
        """
        wait_s = min(max_wait_s, self.timeout_s)
        try:
            return dial(self.address, self.port, self.round, self.secret, label, wait_s)
        except NoRoute as error:
            raise ProbeFailed(Failure.NO_ROUTE, str(error)) from error

    @property
    def shares(self) -> tuple[tuple[int, float], ...]:
        """Message size and seconds for each, at least 0.05 s; the last gets half of the time."""
        if len(self.sizes) == 1:
            return ((self.sizes[0], self.duration_s),)
        half = max(self.duration_s / 2, _MIN_DURATION_S)
        rest = max(half / (len(self.sizes) - 1), _MIN_DURATION_S)
        return (*((size, rest) for size in self.sizes[:-1]), (self.sizes[-1], half))


@dataclass(frozen=True, slots=True)
class Measured:
    """The result at the connecting end.

    Args:
        edges: one for each direction, failed ones included.
        extra: further results as plain JSON, e.g. of every message size.
    """

    edges: tuple[Edge, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)


class Probe(Protocol):
    """One way of measuring a pair. Both calls return within `plan.timeout_s`."""

    @property
    def name(self) -> str:
        """As in Edge.probe."""

    def missing(self) -> str:
        """Why it cannot run on this host; "" if it can."""

    def connect(self, plan: Plan) -> Measured:
        """Measure the pair from the connecting end; failures become edges and are never raised."""

    def accept(self, plan: Plan, listener: Listener) -> None:
        """Serve the other end's measurement. Raises ProbeFailed."""


def failed_edges(plan: Plan, probe: str, error: ProbeFailed) -> tuple[Edge, Edge]:
    """Both directions of a pair that could not be measured."""

    def edge(source: str, target: str) -> Edge:
        return Edge(source, target, plan.round, probe, failure=error.failure, detail=str(error))

    return edge(plan.node, plan.peer), edge(plan.peer, plan.node)


def classify(error: OSError) -> Failure:
    """The kind of failure that a socket error means."""
    if isinstance(error, ConnectionRefusedError):
        return Failure.REFUSED
    if isinstance(error, ConnectionError):
        return Failure.RESET
    if isinstance(error, TimeoutError | BlockingIOError) or error.errno in _UNREACHABLE:
        return Failure.NO_ANSWER
    return Failure.PROBE_ERROR


def probe_failure(error: Exception) -> ProbeFailed:
    """The failure that an error of a probe means."""
    if isinstance(error, ProbeFailed):
        return error
    if isinstance(error, BlockingIOError):
        # What a socket raises at the end of its own deadline.
        return ProbeFailed(Failure.NO_ANSWER, "connected, then no answer before the deadline")
    kind = classify(error) if isinstance(error, OSError) else Failure.PROBE_ERROR
    return ProbeFailed(kind, str(error))


def guarded(plan: Plan, probe: str, measure: Callable[[Plan], Measured]) -> Measured:
    """Call `measure`; what it raises becomes the failure of both directions."""
    try:
        return measure(plan)
    except (ProbeFailed, OSError, ValueError) as error:
        failure = probe_failure(error)
        where = f"{plan.address} port {plan.port}: {failure}"
        return Measured(failed_edges(plan, probe, ProbeFailed(failure.failure, where)))
