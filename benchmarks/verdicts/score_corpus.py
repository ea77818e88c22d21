"""How often relkit and others name the rank at fault of labelled incidents, and how often others.

    python benchmarks/verdicts/make_corpus.py FOLDER
    python benchmarks/verdicts/score_corpus.py FOLDER
    python benchmarks/verdicts/score_corpus.py FOLDER --tools "relkit why" --wrong
    pip install --no-deps --target PEERS --only-binary :all: --python-version 3.12 \\
        --platform manylinux_2_39_x86_64 nvidia-resiliency-ext==0.7.0 gpualert==0.1.6 tomli-w
    python benchmarks/verdicts/score_corpus.py FOLDER --peers PEERS

Each tool gets the incidents whose files it reads, and its best reading (its adapter says which). A
hash of the name puts each incident into one of two halves: relkit's rules were tuned on the first;
of the second only scores are shown, and --wrong lists the first alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.verdicts.adapters.forked import ask
from benchmarks.verdicts.adapters.fr_trace import FrTrace
from benchmarks.verdicts.adapters.gpualert import GpuAlert
from benchmarks.verdicts.adapters.model import Adapter
from benchmarks.verdicts.adapters.nvrx import Nvrx
from benchmarks.verdicts.adapters.relkit_tools import HangAnalyze, Why
from benchmarks.verdicts.score_logs import half_of
from benchmarks.verdicts.scores import OTHER, TUNED, Row, by_group, totals, wrong

# Those that pip installs, which need the folder that it has put them into.
_PEERS: tuple[Callable[[], Adapter], ...] = (Nvrx, GpuAlert)


def adapters(peers: Path | None) -> list[Adapter]:
    """All tools that are here.

    Args:
        peers: a folder with packages of others, None for none.
    """
    made: list[Adapter] = [Why(), HangAnalyze(), FrTrace()]
    if peers is not None:
        sys.path.append(str(peers))
        for peer in _PEERS:
            try:
                made.append(peer())
            except ImportError as error:
                print(f"left out: {error}", file=sys.stderr)
    return made


def evidence_of(label: dict[str, Any]) -> frozenset[str]:
    """`dumps`, `stacks`, `logs`: what an incident consists of."""
    kept = label["made_by"].get("evidence", ["logs"])
    kinds = {"gloo": "dumps", "nccl": "dumps", "logs": "logs"}
    return frozenset(kinds.get(each, "stacks") for each in kept)


def rows_of(folder: Path, chosen: Sequence[Adapter]) -> list[Row]:
    """All answers of all tools."""
    labels = [json.loads(line) for line in (folder / "labels.jsonl").read_text().splitlines()]
    return [
        Row(
            adapter.name, label["name"], label["group"],
            TUNED if half_of(label["name"]) == "tuned" else OTHER,
            frozenset(label["culprits"]), frozenset(label["causes"]),
            ask(adapter, folder / "incidents" / label["name"]),
            adapter.tells_cause, adapter.names_ranks,
        )
        for adapter in chosen
        for label in labels
        if adapter.reads(evidence_of(label))
    ]  # fmt: skip


def main() -> None:
    """Ask, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="that make_corpus.py has made")
    parser.add_argument("--peers", type=Path, help="folder with packages of other tools")
    parser.add_argument("--tools", default="", help="names with one of these in them, by ,")
    parser.add_argument("--wrong", action="store_true", help="list what is wrong in the first half")
    given = parser.parse_args()
    words = given.tools.split(",")
    chosen = [a for a in adapters(given.peers) if any(word in a.name for word in words)]
    rows = rows_of(given.folder, chosen)
    if given.wrong:
        print(wrong(rows, TUNED))
    print(totals(rows))
    for halves in ((TUNED,), (OTHER,), (TUNED, OTHER)):
        print(f"\n{' and '.join(halves)} half:")
        print(by_group([r for r in rows if r.half in halves], [a.name for a in chosen]))


if __name__ == "__main__":
    main()
