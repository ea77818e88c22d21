"""A finished check as a folder of JSON lines, which can be judged again without the fleet."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from relkit.errors import BadBundle, UnwritablePath
from relkit.files.input_file import read_input_text
from relkit.netcheck.check_result import CheckResult
from relkit.netcheck.device_score import read_score
from relkit.netcheck.model import Edge, NodeFacts
from relkit.netcheck.record import plain_edge, plain_facts, read_edge, read_facts
from relkit.output import write_atomic
from relkit.text.foreign_json import parse_json
from relkit.text.printable import printable_json

FORMAT = "relkit.netcheck.bundle/1"
HEAD, FACTS, EDGES = "check.json", "nodes.jsonl", "edges.jsonl"
FILES = (HEAD, FACTS, EDGES)

_MAX_BYTES = 1 << 30


def save(folder: Path, result: CheckResult) -> list[Path]:
    """Write the three files; a missing folder is created, readable by its owner only.

    Raises:
        UnwritablePath: it cannot be made, or a file cannot be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UnwritablePath(
            f"cannot make the folder {folder}: {error.strerror}",
            next_step="Name another folder with -o.",
        ) from error
    head = {
        "format": FORMAT,
        "mode": result.mode,
        "probe": result.probe,
        "rounds": result.rounds,
        "nodes": list(result.nodes),
        "groups": dict(result.groups),
        "lost": dict(result.lost),
        "duplicate_hosts": [list(names) for names in result.duplicate_hosts],
        "notes": list(result.notes),
        "one_host": result.one_host,
        "scores": [asdict(score) for score in result.scores],
        "score_errors": dict(result.score_errors),
    }
    write_atomic(folder / FACTS, _lines(plain_facts(facts) for facts in result.facts))
    edges = (*result.edges, *result.load_edges)
    write_atomic(folder / EDGES, _lines(plain_edge(edge) for edge in edges))
    # Last: if the head is there, the other two files are complete.
    text = json.dumps(head, indent=1, ensure_ascii=False)
    write_atomic(folder / HEAD, printable_json(text) + "\n")
    return [folder / name for name in FILES]


def load(folder: Path) -> CheckResult:
    """Read a bundle, of this version or an older one.

    Raises:
        BadBundle: a file is missing, truncated, of an unknown version, or no bundle at all.
    """
    head = _read_head(folder)
    names = tuple(name for name in _list(head.get("nodes")) if isinstance(name, str))
    facts = _read_all_facts(folder)
    if len(set(names)) != len(names) or set(facts) != set(names):
        raise BadBundle(f"{folder}: {FACTS} and {HEAD} do not name the same nodes")
    rounds = head.get("rounds")
    edges = _read_all_edges(folder, facts)
    return CheckResult(
        nodes=names,
        facts=tuple(facts[name] for name in names),
        edges=tuple(edge for edge in edges if not edge.under_load),
        load_edges=tuple(edge for edge in edges if edge.under_load),
        lost={node: why for node, why in _texts(head.get("lost")).items() if node in facts},
        groups={node: to for node, to in _texts(head.get("groups")).items() if node in facts},
        duplicate_hosts=tuple(
            tuple(str(name) for name in group)
            for group in _list(head.get("duplicate_hosts"))
            if isinstance(group, list)
        ),
        mode=str(head.get("mode", "")),
        probe=str(head.get("probe", "")),
        rounds=rounds if isinstance(rounds, int) and not isinstance(rounds, bool) else 0,
        notes=tuple(str(note) for note in _list(head.get("notes"))),
        one_host=head.get("one_host") is True,
        scores=tuple(read_score(plain) for plain in _list(head.get("scores"))),
        score_errors=_texts(head.get("score_errors")),
    )


def _read_head(folder: Path) -> dict[str, Any]:
    try:
        head = parse_json(_text(folder / HEAD))
    except ValueError as error:
        raise BadBundle(f"{folder / HEAD} is not JSON: {error}") from error
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        made = head.get("format") if isinstance(head, dict) else None
        raise BadBundle(f"{folder} is not a netcheck bundle of this version: {made!r:.80}")
    return head


def _read_all_facts(folder: Path) -> dict[str, NodeFacts]:
    facts = {}
    for place, plain in _read_lines(folder / FACTS):
        item = read_facts(plain)
        if item is None:
            raise BadBundle(f"{place} does not describe a node")
        facts[item.name] = item
    return facts


def _read_all_edges(folder: Path, nodes: Container[str]) -> tuple[Edge, ...]:
    edges = []
    for place, plain in _read_lines(folder / EDGES):
        edge = read_edge(plain)
        if edge is None or edge.source not in nodes or edge.target not in nodes:
            raise BadBundle(f"{place} is not an edge between two of the nodes")
        edges.append(edge)
    return tuple(edges)


def load_any(path: Path) -> CheckResult:
    """Read a bundle by its folder or by any of its files; see load()."""
    return load(path.parent if path.name in FILES else path)


def _lines(items: Iterator[dict[str, Any]]) -> str:
    return "".join(printable_json(json.dumps(item, ensure_ascii=False)) + "\n" for item in items)


def _read_lines(path: Path) -> Iterator[tuple[str, object]]:
    for number, line in enumerate(_text(path).splitlines(), 1):
        try:
            yield f"{path}:{number}", parse_json(line)
        except ValueError as error:
            raise BadBundle(f"{path}:{number} is not JSON: {error}") from error


def _text(path: Path) -> str:
    try:
        return read_input_text(path, _MAX_BYTES)
    except OSError as error:
        raise BadBundle(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadBundle(f"{path} is not text") from error


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {key: text for key, text in value.items() if isinstance(text, str)}
