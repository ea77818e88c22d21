"""docs/reference/metrics.md: every metric there is, from the product's own tables."""

from __future__ import annotations

from relkit.metrics.other_names import OTHER_NAMES
from relkit.metrics.table import METRICS


def metrics_page(made: str) -> str:
    """docs/reference/metrics.md as text.

    Args:
        made: the comment that says that the page is made.
    """
    return (
        "\n\n".join(
            [
                made,
                "# All metrics",
                "What `relkit launch` tells Prometheus. Every series has the labels `job_id` and "
                "`node`, too. [How it gets there](../metrics.md), and what the figures mean.",
                _metrics_table(),
                "## From xpu_timer and DLRover",
                _names_table(),
            ]
        )
        + "\n"
    )


def _metrics_table() -> str:
    rows = [
        f"| `{each.name}` | {each.kind} | {each.unit or '-'} | "
        f"{', '.join(f'`{label}`' for label in each.labels) or '-'} | {each.max_series} | "
        f"{each.help} | {each.source} |"
        for each in METRICS
    ]
    head = "| metric | type | unit | labels | series at most | what it says | who knows it |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *rows])


def _names_table() -> str:
    rows = [
        f"| {each.tool} | {f'`{each.name}`' if each.name.isupper() else each.name} | "
        f"{', '.join(f'`{metric.name}`' for metric in each.ours) or 'none'} | {each.note} |"
        for each in OTHER_NAMES
    ]
    return "\n".join(["| tool | there | here | difference |", "|---|---|---|---|", *rows])
