"""Writes the tables of docs/metrics.md from the product's own: python -m tools.docs_metrics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from relkit.metrics.other_names import OTHER_NAMES
from relkit.metrics.table import METRICS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"


def metrics_table() -> str:
    """All metrics, a row each."""
    rows = [
        f"| `{each.name}` | {each.kind} | {each.unit or '-'} | "
        f"{', '.join(f'`{label}`' for label in each.labels) or '-'} | {each.max_series} | "
        f"{each.help} | {each.source} |"
        for each in METRICS
    ]
    head = "| metric | type | unit | labels | series at most | what it says | who knows it |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *rows])


def names_table() -> str:
    """What other tools call them."""
    rows = [
        f"| {each.tool} | {f'`{each.name}`' if each.name.isupper() else each.name} | "
        f"{', '.join(f'`{metric.name}`' for metric in each.ours) or 'none'} | {each.note} |"
        for each in OTHER_NAMES
    ]
    return "\n".join(["| tool | there | here | difference |", "|---|---|---|---|", *rows])


def with_tables(page: str) -> str:
    """The page with its tables as they are to be."""
    tables: Mapping[str, str] = {"metrics": metrics_table(), "names": names_table()}
    for name, table in tables.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        block = f"{begin}\n\n{table}\n\n{end}"
        assert page.count(begin) == page.count(end) == 1, f"docs/metrics.md has no place for {name}"
        before, after = page.split(begin)[0], page.split(end)[1]
        page = f"{before}{block}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
