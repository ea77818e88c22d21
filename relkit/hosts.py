"""Which nodes: node sets, host files, exclusions, and folded names for people."""

from __future__ import annotations

import codecs
import ipaddress
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from relkit.errors import UsageProblem
from relkit.files.input_file import read_input
from relkit.text.whole_number import whole_number

MAX_NODES = 65_536
_MAX_SLOTS = 1 << 20
_MAX_ITEM = 60
_MAX_BYTES = 64 << 20
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_PIECE = re.compile(r"(?:(?P<user>[^@]*)@)?(?P<host>[^@:]+)(?::(?P<port>\d{1,5}))?")
_ITEM = re.compile(r"\d+(?:-\d+(?:/\d+)?)?", re.ASCII)
_SET = re.compile(r"(?:[A-Za-z0-9._-]|\[[0-9,/-]+\])+")
# IFNAMSIZ leaves 15 characters.
_SCOPE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,14}")
_AFTER_DIGIT = re.compile(r"(?<=[0-9])\[([^\]]*)\]")
_GROUP = re.compile(r"@[A-Za-z0-9_*][A-Za-z0-9._:*-]*")
# A host of such a name does not exist, and looking for it would take until a time limit.
_FILE = re.compile(r"[^\s,\[\]@]+\.(?:txt|list|lst|csv)", re.IGNORECASE)
_COMMA = re.compile(r",(?![^\[]*\])")
_BRACKETED = re.compile(
    r"(?:(?P<user>[^@]*)@)?\[(?P<host>[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(?:%[^\]]*)?)\](?::(?P<port>\d{1,5}))?"
)
# Behind a name, MPICH, Intel MPI and Horovod write the number of processes, ssh's users the port.
_SSH_PORT, _MIN_PORT = 22, 1024


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node, as the user named it.

    Args:
        name: what reports call it.
        address: where to reach it, if not under its name.
        user, port: for ssh; "" and 0 leave them to ssh's own configuration.
        slots: number of processes on it, 0 if not given.
    """

    name: str
    address: str = ""
    user: str = ""
    port: int = 0
    slots: int = 0

    @property
    def target(self) -> str:
        """The host to connect to."""
        return self.address or self.name


@dataclass(frozen=True, slots=True)
class NodeList:
    """Nodes without duplicates, in the order given, and warnings about the input."""

    nodes: tuple[NodeSpec, ...]
    warnings: tuple[str, ...] = ()


def numeric_address(text: str) -> str:
    """The normal form of an IPv4 or IPv6 address; "" if the text is none.

    The scope of an IPv6 address must be the name or number of an interface: Python's ipaddress
    takes any text there, and addresses reach command lines.
    """
    try:
        address = str(ipaddress.ip_address(text))
    except ValueError:
        return ""
    scope = address.partition("%")[2]
    return address if not scope or _SCOPE.fullmatch(scope) else ""


def read_nodes(text_or_path: str, *, exclude: str = "") -> NodeList:
    """Nodes from a file, a node set, a group, or stdin.

    Args:
        text_or_path: a file (one node or node set a line, `#` comments, `slots=`, `address=`,
            `user=`, `port=`; also what MPI libraries, LSF and SGE write), a node set
            ("node[001-128]", "root@a:2222,b"), "@group", or "-".
        exclude: the same, for nodes to leave out; "" for none.

    Raises:
        UsageProblem: an invalid name, an empty list, a file that cannot be read.
    """
    counted: list[str] = []
    specs, warnings = _merged(_specs(text_or_path, counted))
    if counted:
        warnings.append(
            f"{counted[0]} is taken for a number of processes, as MPICH and Horovod write it; "
            "for a port of ssh's write port="
        )
    if exclude:
        out = {spec.name for spec in _specs(exclude, [])}
        known = {name for spec in specs for name in (spec.name, spec.target)}
        if out - known:
            warnings.append(f"excluded, but not in the list: {fold(out - known)}")
        specs = [spec for spec in specs if not out & {spec.name, spec.target}]
    if not specs:
        raise UsageProblem("no node is left", next_step="Name nodes with --nodes.")
    return NodeList(tuple(specs), tuple(warnings))


def default_nodes(environ: Mapping[str, str] | None = None) -> NodeList:
    """The nodes of the Slurm job that this runs in.

    Raises:
        UsageProblem: this is not a Slurm job.
    """
    text = (os.environ if environ is None else environ).get("SLURM_JOB_NODELIST", "")
    if not text:
        raise UsageProblem(
            "no nodes are given, and this is not a Slurm job",
            next_step="Name them: --nodes hosts.txt, --nodes 'node[001-128]', or --nodes @group.",
        )
    return slurm_nodes(text, "SLURM_JOB_NODELIST")


def slurm_nodes(text: str, variable: str) -> NodeList:
    """The nodes of a list of Slurm's, in its order.

    Args:
        text: as `node[1-4,7]`; variable: where it stood.

    Raises:
        UsageProblem: it is none.
    """
    specs, warnings = _merged(_line(text, variable, []))
    if not specs:
        raise UsageProblem(f"{variable} names no node")
    return NodeList(tuple(specs), tuple(warnings))


def fold(names: Iterable[str]) -> str:
    """Names in short form: node[1-4,7]; anything that is not a node name is listed as it is."""
    from ClusterShell.NodeSet import NodeSet

    plain: list[str] = []
    odd: list[str] = []
    for name in names:
        (plain if _NAME.fullmatch(name) and ":" not in name else odd).append(name)
    folded = str(NodeSet.fromlist(plain)) if plain else ""
    return ",".join(part for part in (folded, *sorted(set(odd))) if part)


def _specs(text: str, counted: list[str]) -> list[NodeSpec]:
    """All nodes of what the user named.

    Args:
        text: see read_nodes.
        counted: gets what was taken for a number of processes and may be meant as a port.
    """
    if text == "-":
        return _lines(sys.stdin.read(), "stdin", counted)
    path = Path(text)
    if os.path.isfile(text):  # noqa: PTH113 (Path.is_file raises for a text too long for a path)
        try:
            return _lines(_decoded(read_input(path, _MAX_BYTES)), str(path), counted)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageProblem(f"cannot read the nodes in {path}: {error}") from error
    if ("/" in text and "[" not in text) or _FILE.fullmatch(text):
        if _is_locked(path):
            raise UsageProblem(f"cannot read the nodes in {path}: Permission denied")
        raise UsageProblem(
            f"there is no file {text!r} with nodes",
            next_step="Name a file that is here, or the nodes: --nodes 'node[001-128]'.",
        )
    return _line(text, "the node set", counted)


def _is_locked(path: Path) -> bool:
    """Whether this user may not even see what is there."""
    try:
        path.stat()
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def _decoded(data: bytes) -> str:
    """Text as editors and shells write it, also those of Windows."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16")
    return data.decode("utf-8-sig")


def _lines(text: str, source: str, counted: list[str]) -> list[NodeSpec]:
    specs: list[NodeSpec] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.split("#", 1)[0].strip()
        if stripped:
            specs += _line(stripped, f"{source}, line {number}", counted)
        if len(specs) > MAX_NODES:
            raise UsageProblem(f"{source}: more than {MAX_NODES} nodes")
    return specs


def _line(line: str, source: str, counted: list[str]) -> list[NodeSpec]:
    """One line: names (separated by commas), then key=value words for all of them."""
    words = re.sub(r"\s*=\s*", "=", line.removeprefix("\ufeff")).split()
    plain = [word for word in words if "=" not in word]
    keys = [word.partition("=") for word in words if "=" in word]
    if not keys and (pairs := _counts(plain)):
        return [
            replace(spec, slots=slots)
            for name, slots in pairs
            for spec in _piece(name, source, counted)
        ]
    if words[: len(plain)] != plain:
        raise UsageProblem(f"{source}: the names must come before {keys[0][0]}=")
    if len(plain) > 1:
        raise UsageProblem(
            f"{source}: {plain[1][:_MAX_ITEM]!r} stands behind a node, and may be a node or a word",
            next_step="Write one node a line, or commas between nodes; a remark begins with #.",
        )
    pieces = [piece for word in plain for piece in _COMMA.split(word) if piece]
    specs = [spec for piece in pieces for spec in _piece(piece, source, counted)]
    for key, _, value in keys:
        specs = _with(specs, key, value, source)
    return specs


def _counts(words: Sequence[str]) -> list[tuple[str, int]]:
    """Names and numbers of processes: LSF's `a 8 b 8`, SGE's `a 8 all.q@a UNDEFINED`."""
    if len(words) < 2:
        return []
    is_sge = len(words) == 4 and "@" in words[2]
    pairs = list(zip(words[0::2], words[1::2], strict=False))[: 1 if is_sge else None]
    counts = [whole_number(number, _MAX_SLOTS) for _, number in pairs]
    if (len(words) % 2 and not is_sge) or None in counts:
        return []
    return [(name, count or 0) for (name, _), count in zip(pairs, counts, strict=True)]


def _piece(piece: str, source: str, counted: list[str]) -> list[NodeSpec]:
    """All nodes of one name, node set, group or address."""
    bare = piece[1:-1] if piece.startswith("[") and piece.endswith("]") else piece
    if address := numeric_address(bare):
        return [NodeSpec(address)]
    if piece.startswith("@"):
        if not _GROUP.fullmatch(piece):
            raise _refused(piece, source)
        return [NodeSpec(name) for name in _expanded(piece, source)]
    if match := _BRACKETED.fullmatch(piece):
        names = [numeric_address(match["host"])]
        if not names[0]:
            raise _refused(piece, source)
    else:
        match = _PIECE.fullmatch(piece)
        if match is None or not _SET.fullmatch(match["host"]):
            raise _refused(piece, source)
        names = _expanded(match["host"], source)
    user = match["user"]
    if user is not None and not _USER.fullmatch(user):
        raise _refused(piece, source)
    port = _port(match["port"], source) if match["port"] else 0
    slots = port if 0 < port < _MIN_PORT and port != _SSH_PORT else 0
    if slots:
        counted.append(piece)
        port = 0
    return [NodeSpec(name, user=user or "", port=port, slots=slots) for name in names]


def _expanded(text: str, source: str) -> list[str]:
    from ClusterShell.NodeSet import NodeSet, NodeSetException
    from ClusterShell.NodeUtils import GroupResolverError

    size = 1
    for inside in re.findall(r"\[([^\]]*)\]", text):
        size *= sum(_span(item, text, source) for item in inside.split(","))
    if size > MAX_NODES:
        raise UsageProblem(f"{source}: {text!r} means {size} nodes; the limit is {MAX_NODES}")
    try:
        names = [name for part in _of_one_width(text) for name in NodeSet(part)]
    except (NodeSetException, GroupResolverError, AssertionError) as error:
        # It asserts that digits after a bracket, which it joins to the range, are not too many.
        raise UsageProblem(f"{source}: {text!r} is not a node set: {error}") from error
    if not names:
        raise UsageProblem(f"{source}: {text!r} has no nodes")
    for name in names:
        if not _NAME.fullmatch(name):
            raise _refused(name, source)
    return names


def _of_one_width(text: str, since: int = 0) -> Iterator[str]:
    """The same set in parts in which ranges after a digit are as wide at both ends.

    `n10[9-11]` means n109, n1010 and n1011. ClusterShell joins the digits first, to 109-1011.
    """
    bracket = next((b for b in _AFTER_DIGIT.finditer(text, since) if _is_ragged(b[1])), None)
    if bracket is None:
        yield text
        return
    for item in bracket[1].split(","):
        for part in _by_width(item):
            before = text[: bracket.start(1)] + part
            yield from _of_one_width(before + text[bracket.end(1) :], len(before))


def _by_width(item: str) -> Iterator[str]:
    """`8-12/2` -> `8-8/2`, `10-12/2`; numbers with zeros in front have one width already."""
    low, dash, rest = item.partition("-")
    high, slash, step = rest.partition("/")
    if not dash or (low.startswith("0") and len(low) > 1):
        yield item
        return
    numbers = range(int(low), int(high) + 1, int(step or 1))
    for width in range(len(low), len(high) + 1):
        inside = [number for number in numbers if len(str(number)) == width]
        if inside:
            yield f"{inside[0]}-{inside[-1]}{slash}{step}"


def _is_ragged(inside: str) -> bool:
    """One of the ranges, or two of them, differ in the number of their digits."""
    return len({len(number) for number in re.findall(r"(?:^|[,-])([0-9]+)", inside)}) > 1


def _span(item: str, text: str, source: str) -> int:
    """How many numbers `7`, `1-9` or `1-9/2` are; the steps do not count."""
    if not _ITEM.fullmatch(item) or len(item) > _MAX_ITEM:
        raise UsageProblem(f"{source}: {text!r} is not a node set: {item[:_MAX_ITEM]!r} in it")
    low, _, high = item.split("/")[0].partition("-")
    return max(1, int(high or low) - int(low) + 1)


def _with(specs: list[NodeSpec], key: str, value: str, source: str) -> list[NodeSpec]:
    if key in ("slots", "max_slots", "max-slots"):
        slots = whole_number(value, _MAX_SLOTS)
        if slots is None:
            raise UsageProblem(f"{source}: {key}={value[:_MAX_ITEM]!r} is not a number of slots")
        return [replace(spec, slots=slots) for spec in specs] if key == "slots" else specs
    if key == "port":
        port = _port(value, source)
        return [replace(spec, port=port) for spec in specs]
    if key == "user" and _USER.fullmatch(value):
        return [replace(spec, user=value) for spec in specs]
    if key == "address":
        return _at_addresses(specs, value, source)
    raise UsageProblem(
        f"{source}: {key}={value!r} is not understood",
        next_step="slots=, user=, port= apply to all nodes of a line, address= names one for each.",
    )


def _at_addresses(specs: list[NodeSpec], value: str, source: str) -> list[NodeSpec]:
    """The same nodes, reached where `address=` says: `ops@10.0.0.9:2222`, or one for each node."""
    meant_as_processes: list[str] = []
    pieces = [piece for piece in _COMMA.split(value) if piece]
    there = [spec for piece in pieces for spec in _piece(piece, source, meant_as_processes)]
    if meant_as_processes:
        raise UsageProblem(f"{source}: {meant_as_processes[0]!r} has no port of ssh's")
    if len(there) != len(specs):
        raise UsageProblem(
            f"{source}: address={value[:_MAX_ITEM]!r} names {len(there)} addresses for "
            f"{len(specs)} nodes",
            next_step="Name an address for each node of the line: n[1-2] address=10.0.0.[1-2]",
        )
    return [
        replace(spec, address=at.name, user=at.user or spec.user, port=at.port or spec.port)
        for spec, at in zip(specs, there, strict=True)
    ]


def _port(text: str, source: str) -> int:
    port = whole_number(text, (1 << 16) - 1)
    if not port:
        raise UsageProblem(f"{source}: {text[:_MAX_ITEM]!r} is not a port")
    return port


def _refused(name: str, source: str) -> UsageProblem:
    return UsageProblem(
        f"{source}: {name!r} is not a node name",
        next_step="Names have letters, digits, dots, dashes, and do not start with a dash.",
    )


def _merged(specs: list[NodeSpec]) -> tuple[list[NodeSpec], list[str]]:
    """Each node once; one host with several ports counts as several nodes, named with the port."""
    ports: dict[str, set[int]] = {}
    for spec in specs:
        ports.setdefault(spec.name, set()).add(spec.port)
    unique: dict[str, NodeSpec] = {}
    twice: list[str] = []
    for spec in specs:
        if len(ports[spec.name]) > 1:
            spec = replace(spec, name=f"{spec.name}:{spec.port or 22}", address=spec.target)
        if spec.name in unique:
            twice.append(spec.name)
        else:
            unique[spec.name] = spec
    warnings = [f"given more than once, used once: {fold(dict.fromkeys(twice))}"] if twice else []
    return list(unique.values()), warnings
