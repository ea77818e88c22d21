"""Answers beside the truth: how often right, and how often an innocent rank was named; pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.verdicts.adapters.forked import Asked
from relkit.output import table

TUNED, OTHER = "tuned", "other"


@dataclass(frozen=True, slots=True)
class Row:
    """One tool's answer on one incident.

    Args:
        tool, name, group, half: of which tool, which incident.
        culprits: true ones; causes: true ones, none where that is not judged.
        asked: what came back; tells_cause, names_ranks: of the tool.
    """

    tool: str
    name: str
    group: str
    half: str
    culprits: frozenset[int]
    causes: frozenset[str]
    asked: Asked
    tells_cause: bool
    names_ranks: bool

    @property
    def named(self) -> frozenset[int]:
        """The ranks that the tool names."""
        return frozenset(self.asked.said.culprits)

    @property
    def right(self) -> bool:
        """Exactly the ranks at fault; nobody where there is none."""
        return self.named == self.culprits

    @property
    def unknown(self) -> bool:
        """A rank is at fault, and the tool names nobody."""
        return bool(self.culprits) and not self.named

    @property
    def false_names(self) -> int:
        """How many ranks it names that are not at fault."""
        return len(self.named - self.culprits)

    @property
    def cause_right(self) -> bool:
        """Whether the cause is one of the true ones."""
        return self.asked.said.cause in self.causes


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "-"


def _ranks(rows: Sequence[Row]) -> tuple[str, ...]:
    hits = sum(len(row.named & row.culprits) for row in rows)
    named = sum(len(row.named) for row in rows)
    true = sum(len(row.culprits) for row in rows)
    return (
        f"{sum(row.right for row in rows)} of {len(rows)}",
        _share(hits, named),
        _share(hits, true),
        f"{sum(row.false_names for row in rows)} in {sum(row.false_names > 0 for row in rows)}",
        str(sum(row.unknown for row in rows)),
    )


def totals(rows: Iterable[Row]) -> str:
    """A line for each tool and half."""
    made = []
    for some in _by(rows, lambda row: f"{row.tool}, {row.half}").values():
        told = [row for row in some if row.tells_cause and row.causes]
        cpu_ms = sorted(row.asked.cpu_s * 1000 for row in some)
        made.append(
            (
                some[0].tool, some[0].half,
                *(_ranks(some) if some[0].names_ranks else ("-", "-", "-", "-", "-")),
                f"{sum(row.cause_right for row in told)} of {len(told)}" if told else "-",
                str(sum(bool(row.asked.error) for row in some)),
                f"{cpu_ms[len(cpu_ms) // 2]:.0f}",
            )
        )  # fmt: skip
    return table(
        made,
        ("tool", "half", "right", "precision", "recall", "false names", "unknown", "cause right",
         "failed", "CPU, ms"),
    )  # fmt: skip


def by_group(rows: Iterable[Row], tools: Collection[str]) -> str:
    """A line for each kind of incident: right of asked, and in how many a false name."""
    made = []
    for group, some in _by(rows, lambda row: row.group).items():
        cells = [_cell([row for row in some if row.tool == tool]) for tool in tools]
        made.append((group, *cells))
    return table(made, ("incidents", *tools))


def _cell(rows: Sequence[Row]) -> str:
    if not rows:
        return "-"
    if not rows[0].names_ranks:
        told = [row for row in rows if row.causes]
        return f"{sum(row.cause_right for row in told)} of {len(told)} causes" if told else "-"
    false = sum(row.false_names > 0 for row in rows)
    also = f", {false} false" if false else ""
    return f"{sum(row.right for row in rows)} of {len(rows)}{also}"


def wrong(rows: Iterable[Row], half: str) -> str:
    """The answers that are not right, of one half."""
    return "\n".join(_line(row) for row in rows if row.half == half and not _is_all_right(row))


def _is_all_right(row: Row) -> bool:
    is_cause_right = row.cause_right or not row.tells_cause or not row.causes
    return is_cause_right and (row.right or not row.names_ranks)


def _line(row: Row) -> str:
    said = row.asked.said
    return (
        f"{row.tool}: {row.name}: at fault {sorted(row.culprits) or 'nobody'}, named "
        f"{sorted(row.named) or 'nobody'}, cause {said.cause or '-'} "
        f"(true: {' or '.join(sorted(row.causes)) or '-'}): {row.asked.error or said.sentence}"
    )


def _by(rows: Iterable[Row], key: Callable[[Row], str]) -> Mapping[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups
