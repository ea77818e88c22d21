"""What launchers tell each other to measure links: short JSON notes, a prefix per incident.

    incident/<i>/links                leader -> all: which nodes, and with what they authenticate
    incident/<i>/links/at/<n>         node n -> leader: where it listens
    incident/<i>/links/go/<t>         leader -> all: who connects where and when; nobody: it is over
    incident/<i>/links/done/<t>/<n>   node n -> leader: what it measured

They come from authenticated launchers, but of any version and in any state: whatever a note
holds, it is read into numbers and texts that are bounded, or refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from relkit.hang.links.model import MAX_NODES
from relkit.hosts import numeric_address
from relkit.launch.job.node_name import is_node_name
from relkit.text.foreign_json import parse_json
from relkit.text.printable import printable_line
from relkit.text.whole_number import whole_number

MAX_NOTE_BYTES = 64 << 10
NONCE_BYTES = 16
MAX_SLOTS = MAX_NODES
MAX_PAIRS = MAX_NODES * (MAX_NODES - 1) // 2
_MAX_TEXT = 200
# A faster link than this is none, MB/s; nor is a slower answer, ms.
_MAX_MB_PER_S = 1e7
_MAX_ROUND_TRIP_MS = 1e6


class BadNote(ValueError):
    """A note cannot be read; the text says why."""


def ask_key(number: int) -> str:
    """The leader's request in an incident."""
    return f"incident/{number}/links"


def at_key(number: int, node: int) -> str:
    """Where a node listens."""
    return f"{ask_key(number)}/at/{node}"


def go_key(number: int, turn: int) -> str:
    """What is measured in a turn."""
    return f"{ask_key(number)}/go/{turn}"


def done_key(number: int, turn: int, node: int) -> str:
    """What a node measured in a turn."""
    return f"{ask_key(number)}/done/{turn}/{node}"


@dataclass(frozen=True, slots=True)
class Ask:
    """The request.

    Args:
        nodes: numbers of the nodes that take part, ascending.
        nonce: makes the key of this check from that of the links; 16 bytes.
    """

    nodes: tuple[int, ...]
    nonce: bytes = field(repr=False)

    def encode(self) -> bytes:
        """As a note."""
        return _encode({"nodes": list(self.nodes), "nonce": self.nonce.hex()})


def read_ask(note: bytes, nodes: int) -> Ask:
    """A request.

    Args:
        nodes: how many the job has.

    Raises:
        BadNote: it is none.
    """
    plain = _decode(note)
    numbers, nonce = plain.get("nodes"), plain.get("nonce")
    if not isinstance(numbers, list) or not 2 <= len(numbers) <= MAX_NODES:
        raise BadNote(f"it does not name 2 to {MAX_NODES} nodes")
    if any(type(each) is not int or not 0 <= each < nodes for each in numbers):
        raise BadNote("it names nodes that the job does not have")
    if numbers != sorted(set(numbers)):
        raise BadNote("its nodes are not in order")
    try:
        secret = bytes.fromhex(nonce if isinstance(nonce, str) else "")
    except ValueError:
        secret = b""
    if len(secret) != NONCE_BYTES:
        raise BadNote(f"it has no nonce of {NONCE_BYTES} bytes")
    return Ask(tuple(numbers), secret)


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a node listens.

    Args:
        name: of the node.
        address: numeric, "" where it does not take part; ports: by pair.
        problem: why it does not take part.
    """

    name: str
    address: str = ""
    ports: Mapping[int, int] = field(default_factory=dict)
    problem: str = ""

    def encode(self) -> bytes:
        """As a note."""
        ports = {str(pair): port for pair, port in self.ports.items()}
        return _encode(
            {"name": self.name, "address": self.address, "ports": ports, "problem": self.problem}
        )


def read_listening(note: bytes) -> Listening:
    """Where a node listens.

    Raises:
        BadNote: it does not say that.
    """
    plain = _decode(note)
    name, ports = plain.get("name"), plain.get("ports")
    if not isinstance(name, str) or not is_node_name(name):
        raise BadNote("the node has no name")
    if problem := _text(plain.get("problem")):
        return Listening(name, problem=problem)
    address = numeric_address(_text(plain.get("address")))
    if not address:
        raise BadNote("it has no address")
    if not isinstance(ports, dict) or len(ports) > MAX_PAIRS:
        raise BadNote("it has no ports")
    read = {whole_number(str(pair), MAX_PAIRS - 1): port for pair, port in ports.items()}
    if None in read or not all(map(_is_port, read.values())):
        raise BadNote("its ports are none")
    return Listening(name, address, {p: port for p, port in read.items() if p is not None})


@dataclass(frozen=True, slots=True)
class Call:
    """One measurement.

    Args:
        address, port: where the accepting end listens.
        slot: when, counted from the note's arrival in units of `SLOT_S`.
    """

    address: str
    port: int
    slot: int


def encode_go(calls: Mapping[int, Call]) -> bytes:
    """What is measured in a turn, by pair; nothing: the check is over."""
    return _encode({str(pair): [c.address, c.port, c.slot] for pair, c in calls.items()})


def read_go(note: bytes) -> dict[int, Call]:
    """What is measured in a turn, by pair.

    Raises:
        BadNote: it does not say that.
    """
    calls: dict[int, Call] = {}
    for name, call in _decode(note).items():
        pair = whole_number(name, MAX_PAIRS - 1)
        if pair is None or not isinstance(call, list) or len(call) != 3:
            raise BadNote("it names no pair")
        address = numeric_address(_text(call[0]))
        if not address or not _is_port(call[1]):
            raise BadNote("it says of no address where to connect to")
        if type(call[2]) is not int or not 0 <= call[2] < MAX_SLOTS:
            raise BadNote("it does not say when")
        calls[pair] = Call(address, call[1], call[2])
    return calls


@dataclass(frozen=True, slots=True)
class PairResult:
    """What the connecting end of a pair measured: see LinkMeasurement."""

    mb_per_s: float = 0.0
    round_trip_ms: float = 0.0
    failure: str = ""
    is_cut: bool = False


def encode_done(results: Mapping[int, PairResult]) -> bytes:
    """What a node measured, by pair."""
    return _encode(
        {
            str(pair): [each.mb_per_s, each.round_trip_ms, each.failure[:_MAX_TEXT], each.is_cut]
            for pair, each in results.items()
        }
    )


def read_done(note: bytes) -> dict[int, PairResult]:
    """What a node measured, by pair.

    Raises:
        BadNote: it does not say that.
    """
    results: dict[int, PairResult] = {}
    for name, plain in _decode(note).items():
        pair = whole_number(name, MAX_PAIRS - 1)
        if pair is None or not isinstance(plain, list) or len(plain) != 4:
            raise BadNote("it names no pair")
        speed, trip = _number(plain[0], _MAX_MB_PER_S), _number(plain[1], _MAX_ROUND_TRIP_MS)
        failure = _text(plain[2])
        if speed is None or trip is None or type(plain[3]) is not bool:
            raise BadNote("its figures are none")
        if bool(speed) == bool(failure) or (plain[3] and not failure):
            raise BadNote("it says both that a link works and that it does not, or neither")
        results[pair] = PairResult(speed, trip, failure, plain[3])
    return results


def _encode(plain: Mapping[str, object]) -> bytes:
    return json.dumps(plain, separators=(",", ":")).encode()


def _decode(note: bytes) -> dict[str, Any]:
    if len(note) > MAX_NOTE_BYTES:
        raise BadNote(f"it has {len(note)} bytes")
    try:
        plain = parse_json(note)
    except ValueError as error:
        raise BadNote("it is not JSON") from error
    if not isinstance(plain, dict) or len(plain) > MAX_PAIRS:
        raise BadNote("it is not a small JSON object")
    return plain


def _text(value: object) -> str:
    return printable_line(value[:_MAX_TEXT]) if isinstance(value, str) else ""


def _is_port(value: object) -> bool:
    return type(value) is int and 0 < value < 1 << 16


def _number(value: object, largest: float) -> float | None:
    if type(value) not in (int, float):
        return None
    number = float(value) if abs(value) <= largest else math.nan  # type: ignore[arg-type]
    return number if math.isfinite(number) and number >= 0 else None
