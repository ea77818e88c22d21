"""The switches of each node, and a rank order that keeps network neighbours together."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relkit.errors import BadInputFile
from relkit.files.input_file import open_input
from relkit.topology_text import lines_of

_MAX_BYTES = 64 << 20
_MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class SwitchPath:
    """The switches that a node is connected to.

    Args:
        asw: the access switch of the node; psw: the upper switch above it.
    """

    asw: str
    psw: str


@dataclass(frozen=True, slots=True)
class Topology:
    """The network as described by the file.

    Args:
        places: node -> its switches, in the order of the file.
        warnings: unusual but harmless contents, one sentence each.
    """

    places: Mapping[str, SwitchPath]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Crossings:
    """How often two adjacent ranks do not share a switch.

    Args:
        asw, psw: pairs of adjacent ranks on different access switches, and under different upper
            ones. All unknown nodes together count as one more switch.
    """

    asw: int
    psw: int


@dataclass(frozen=True, slots=True)
class RankOrder:
    """Nodes in the order of their ranks.

    Args:
        nodes: rank 0 first.
        before, after: crossings of the order given and of this one.
        unknown: nodes that the topology does not name; they come last.
    """

    nodes: tuple[str, ...]
    before: Crossings
    after: Crossings
    unknown: tuple[str, ...] = ()


def parse(text: str, source: str = "topology", *, may_be_empty: bool = False) -> Topology:
    """Read lines `asw psw node`; the format of DLRover's `topology_config`.

    Words are separated by white space; `#` starts a comment. A node that is listed twice with the
    same switches is a warning.

    Args:
        text: the lines.
        source: what to call them in errors.
        may_be_empty: no node at all is no error.

    Raises:
        BadInputFile: lines without exactly three words, a node with two different places, or no
            node at all. The message gives line numbers.
    """
    places: dict[str, SwitchPath] = {}
    first_seen: dict[str, int] = {}
    problems: list[str] = []
    warnings: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 3 or not all(word.isprintable() for word in words):
            problems.append(f"line {number} is not `asw psw node`")
            continue
        asw, psw, node = words
        place = SwitchPath(asw, psw)
        if node not in places:
            places[node], first_seen[node] = place, number
        elif places[node] == place:
            warnings.append(f"{node} is on line {number} again, as on line {first_seen[node]}")
        else:
            problems.append(
                f"line {number} gives {node} other switches than line {first_seen[node]}"
            )
    if problems:
        more = len(problems) - _MAX_NAMED
        named = problems[:_MAX_NAMED] + ([f"and {more} more"] if more > 0 else [])
        raise BadInputFile(
            f"{source}: {'; '.join(named)}",
            next_step="Write one node a line: access switch, upper switch, node.",
        )
    if not places and not may_be_empty:
        raise BadInputFile(f"{source} names no node")
    warnings += [
        f"{asw} is under several upper switches; each is treated as a switch of its own"
        for asw in sorted(_shared_names(places.values()))
    ]
    return Topology(places, tuple(warnings))


def read(path: Path, *, may_be_empty: bool = False) -> Topology:
    """Read a topology file: lines, or what Kubernetes shows of them (topology_text).

    Args:
        path: of the file; may_be_empty: see parse().

    Raises:
        BadInputFile: it cannot be read, is not text, or is larger than 64 MiB; see also parse().
    """
    try:
        with open_input(path) as stream:
            raw = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise BadInputFile(f"cannot read {path}: {error.strerror}") from error
    if len(raw) > _MAX_BYTES:
        raise BadInputFile(f"{path} is larger than 64 MiB")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInputFile(f"{path} is not UTF-8 text (byte {error.start})") from error
    try:
        lines = lines_of(text)
    except ValueError as error:
        raise BadInputFile(f"{path}: {error}") from error
    return parse(lines, str(path), may_be_empty=may_be_empty)


def switches(path: Path) -> dict[str, str]:
    """node -> name of its access switch, unique in the network: `asw`, or `psw/asw` where needed.

    Raises:
        BadInputFile: see read().
    """
    places = read(path).places
    shared = _shared_names(places.values())
    return {
        node: f"{place.psw}/{place.asw}" if place.asw in shared else place.asw
        for node, place in places.items()
    }


def rank_order(topology: Topology, nodes: Sequence[str] = ()) -> RankOrder:
    """Sort nodes so that those under one switch get adjacent ranks.

    Upper switches come in the order in which the nodes given first reach them, access switches
    within them likewise, and nodes keep their order within a switch: node 0 stays rank 0 if it is
    known. Each switch then is one run of ranks, and no order has fewer crossings.

    Args:
        topology: the network.
        nodes: the job's nodes in the order given; all of the topology where empty.
    """
    given = tuple(nodes) or tuple(topology.places)
    known = [node for node in given if node in topology.places]
    unknown = tuple(node for node in given if node not in topology.places)
    psw_rank = _first_seen(topology.places[node].psw for node in known)
    asw_rank = _first_seen(topology.places[node] for node in known)
    known.sort(
        key=lambda node: (psw_rank[topology.places[node].psw], asw_rank[topology.places[node]])
    )
    order = (*known, *unknown)
    return RankOrder(order, crossings(topology, given), crossings(topology, order), unknown)


def crossings(topology: Topology, nodes: Sequence[str]) -> Crossings:
    """Count adjacent ranks that do not share a switch."""
    places = [topology.places.get(node) for node in nodes]
    return Crossings(_changes(places, lambda p: p), _changes(places, lambda p: p and p.psw))


def _changes(
    places: Sequence[SwitchPath | None], key: Callable[[SwitchPath | None], object]
) -> int:
    keys = [key(place) for place in places]
    return sum(left != right for left, right in itertools.pairwise(keys))


def _first_seen(items: Iterable[object]) -> dict[object, int]:
    return {item: number for number, item in enumerate(dict.fromkeys(items))}


def _shared_names(places: Iterable[SwitchPath]) -> set[str]:
    """Access switch names that stand under more than one upper switch."""
    above: dict[str, set[str]] = {}
    for place in places:
        above.setdefault(place.asw, set()).add(place.psw)
    return {asw for asw, psws in above.items() if len(psws) > 1}
