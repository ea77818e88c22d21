"""A finished check as a folder of JSON lines, so that it can be judged again without the fleet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from relkit.errors import BadBundle, UnwritablePath
from relkit.netcheck.device_score import read_score
from relkit.netcheck.record import plain_edge, plain_facts, read_edge, read_facts
from relkit.netcheck.solve.outcome import Outcome
from relkit.output import write_atomic

FORMAT = "relkit.netcheck.measure.bundle/1"
HEAD, FACTS, EDGES = "check.json", "nodes.jsonl", "edges.jsonl"
FILES = (HEAD, FACTS, EDGES)

_MOST_BYTES = 1 << 30


def save(folder: Path, outcome: Outcome) -> list[Path]:
    """Write the three files; the folder is made where it is missing, private.

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
        "mode": outcome.mode,
        "probe": outcome.probe,
        "rounds": outcome.rounds,
        "nodes": list(outcome.nodes),
        "groups": dict(outcome.groups),
        "lost": dict(outcome.lost),
        "twins": [list(names) for names in outcome.twins],
        "notes": list(outcome.notes),
        "one_host": outcome.one_host,
        "scores": [asdict(score) for score in outcome.scores],
        "score_errors": dict(outcome.score_errors),
    }
    write_atomic(folder / FACTS, _lines(plain_facts(facts) for facts in outcome.facts))
    write_atomic(folder / EDGES, _lines(plain_edge(edge) for edge in outcome.edges))
    # Last: where the head is, the rest is whole.
    write_atomic(folder / HEAD, json.dumps(head, indent=1, ensure_ascii=False) + "\n")
    return [folder / name for name in FILES]


def load(folder: Path) -> Outcome:
    """Read a bundle.

    Raises:
        BadBundle: a file is missing, truncated, of another version, or no bundle at all.
    """
    try:
        head = json.loads(_text(folder / HEAD))
    except ValueError as error:
        raise BadBundle(f"{folder / HEAD} is no JSON: {error}") from error
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        made = head.get("format") if isinstance(head, dict) else None
        raise BadBundle(f"{folder} is not a netcheck bundle of this version: {made!r:.80}")
    names = tuple(name for name in _list(head.get("nodes")) if isinstance(name, str))
    facts = {}
    for place, plain in _read_lines(folder / FACTS):
        item = read_facts(plain)
        if item is None:
            raise BadBundle(f"{place} is not the facts of a node")
        facts[item.name] = item
    if len(set(names)) != len(names) or set(facts) != set(names):
        raise BadBundle(f"{folder}: {FACTS} and {HEAD} do not name the same nodes")
    edges = []
    for place, plain in _read_lines(folder / EDGES):
        edge = read_edge(plain)
        if edge is None or edge.source not in facts or edge.target not in facts:
            raise BadBundle(f"{place} is not an edge between two of the nodes")
        edges.append(edge)
    rounds = head.get("rounds")
    return Outcome(
        nodes=names,
        facts=tuple(facts[name] for name in names),
        edges=tuple(edges),
        lost={node: why for node, why in _texts(head.get("lost")).items() if node in facts},
        groups={node: to for node, to in _texts(head.get("groups")).items() if node in facts},
        twins=tuple(
            tuple(str(name) for name in names)
            for names in _list(head.get("twins"))
            if isinstance(names, list)
        ),
        mode=str(head.get("mode", "")),
        probe=str(head.get("probe", "")),
        rounds=rounds if isinstance(rounds, int) else 0,
        notes=tuple(str(note) for note in _list(head.get("notes"))),
        one_host=head.get("one_host") is True,
        scores=tuple(read_score(plain) for plain in _list(head.get("scores"))),
        score_errors=_texts(head.get("score_errors")),
    )


def load_any(path: Path) -> Outcome:
    """Read a bundle by its folder or by any of its files; see load()."""
    return load(path.parent if path.name in FILES else path)


def _lines(items: Iterator[dict[str, Any]]) -> str:
    return "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items)


def _read_lines(path: Path) -> Iterator[tuple[str, object]]:
    for number, line in enumerate(_text(path).splitlines(), 1):
        try:
            yield f"{path}:{number}", json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadBundle(f"{path}:{number} is no JSON: {error}") from error


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise BadBundle(f"{path} is larger than any bundle")
        return path.read_text(encoding="utf-8")
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
