"""Stragglers of a job as one self-contained page: verdict, heatmap, lateness, parts, links."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from relkit.findings import Finding, Report, Status
from relkit.reports.html import environment, page_time, style_and_policy
from relkit.reports.straggler import straggler_heat, straggler_lateness, straggler_parts
from relkit.straggler.history_types import History
from relkit.straggler.present.metrics import Metrics, recent

_CAUSES = {
    "slow-compute": "slow compute",
    "slow-network": "slow network",
    "slow-input": "slow input",
    "slow-host": "slow host",
    "unknown": "cause not known",
    "noise": "not explained",
}
_MAX_CARDS, _MAX_RANKS, _MAX_LINKS, _MAX_CLOCKS = 6, 15, 15, 64


@dataclass(frozen=True, slots=True)
class _Card:
    """One straggler that holds."""

    who: str
    cause: str
    finding: Finding
    sentence: str
    sure: int
    said: str


def render(report: Report, history: History, metrics: Metrics) -> str:
    """The page as text.

    Args:
        report: straggler_report of the history; history, metrics: what is drawn.
    """
    cards = _cards(report)
    others = [f for f in report.findings if not any(f is card.finding for card in cards)]
    return (
        environment()
        .get_template("straggler.html.j2")
        .render(
            report=report,
            job_id=history.job_id,
            headline=headline(report),
            lead=_lead(report, cards),
            tiles=_tiles(report, history),
            cards=cards[:_MAX_CARDS],
            more_cards=cards[_MAX_CARDS:],
            others=others,
            # Each of these escapes every name.
            heat=Markup(straggler_heat.render(history, metrics)),  # noqa: S704
            lateness=Markup(straggler_lateness.render(history)),  # noqa: S704
            parts=Markup(straggler_parts.render(metrics.breakdowns, history.hosts)),  # noqa: S704
            ranks=_rank_rows(history, metrics),
            left_out=max(0, history.world_size - _MAX_RANKS),
            links=_link_rows(history),
            links_left_out=max(0, len(history.links) - _MAX_LINKS),
            clocks=_clock_rows(history),
            clocks_left_out=max(0, len(history.clock_offsets) - _MAX_CLOCKS),
            hosts=len(set(history.hosts)),
            unseen=_unseen(history, metrics),
            started=page_time(report.started),
            version=report.to_json()["meta"]["version"],
            **style_and_policy("report.css", "straggler.css", rules=straggler_heat.css()),
        )
    )


def headline(report: Report) -> str:
    """The verdict in a few words."""
    stragglers = report.facts.get("stragglers")
    names = [_short(straggler) for straggler in stragglers] if isinstance(stragglers, list) else []
    if names:
        listed = _listed(names[:3] if len(names) <= 3 else names[:2], len(names))
        text = f"{listed} {'slows' if len(names) == 1 else 'slow'} the job down"
        return f"{text[0].upper()}{text[1:]}"
    if report.status is Status.UNKNOWN:
        return "relkit could not tell"
    return "Nobody slows the job down"


def _listed(names: Sequence[str], count: int) -> str:
    if count > len(names):
        return f"{', '.join(names)} and {count - len(names):,} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _short(row: dict[str, Any]) -> str:
    """Without the host: the card has it."""
    return f"rank {row['rank']}" if row["rank"] is not None else str(row["who"])


def _lead(report: Report, cards: Sequence[_Card]) -> str:
    if len(cards) == 1:
        return f"{cards[0].sentence} relkit is {cards[0].sure} % sure."
    if cards:
        return ""
    title = report.findings[0].title if report.findings else ""
    return f"{title[0].upper()}{title[1:]}." if title else ""


def _cards(report: Report) -> list[_Card]:
    """The findings that accuse somebody now; both lists have the same order."""
    accusing = [f for f in report.findings if f.status is Status.FAIL]
    stragglers = report.facts.get("stragglers")
    accused = [row for row in stragglers or [] if row["cause"] != "noise"]
    cards = []
    for finding, row in zip(accusing, accused, strict=True):
        # A figure and its unit stay on one line.
        sentence = finding.title.replace(" %", "\u00a0%")
        cards.append(
            _Card(
                who=str(row["who"]),
                cause=_CAUSES.get(row["cause"], row["cause"]),
                finding=finding,
                sentence=f"{sentence[0].upper()}{sentence[1:]}.",
                sure=min(99, max(0, math.floor(100 * row["confidence"]))),
                said=f"{row['raised_step']:,}",
            )
        )
    return cards


def _tiles(report: Report, history: History) -> list[tuple[str, str, str]]:
    facts = report.facts
    first, last = facts["first_step"], facts["last_step"]
    tiles = [("steps seen", f"{facts['steps']:,}", f"{first:,} to {last:,}")]
    if facts["step_s"] is not None:
        tiles.append(("mean step", _time(facts["step_s"]), ""))
    tiles.append(("ranks", f"{history.world_size:,}", _on_hosts(history)))
    costs = [row for row in facts["stragglers"] if row["cost_s"] > 0]
    if costs:
        worst = max(costs, key=lambda row: row["cost_s"])
        share = worst["cost_share"]
        note = f"{100 * share:.2g} % of its time" if share is not None else ""
        tiles.append(("costliest straggler", _time(worst["cost_s"]), note))
    tiles.append(("job", "ended" if history.ended else "running", ""))
    return tiles


def _on_hosts(history: History) -> str:
    count = len(set(history.hosts))
    return f"on {count:,} host{'s' if count != 1 else ''}"


def _time(value_s: float) -> str:
    return f"{1e3 * value_s:,.3g} ms" if value_s < 0.9995 else f"{value_s:,.3g} s"


def _rank_rows(history: History, metrics: Metrics) -> list[tuple[bool, list[str], int]]:
    """(accused, cells, evidence in percent) of the worst ranks."""
    accused = {raised.verdict.rank for raised in history.verdicts}
    own, late = recent(history, history.local_s), recent(history, history.late_s)
    slowdown = recent(history, metrics.slowdown)
    rows = []
    for rank in metrics.worst[:_MAX_RANKS]:
        evidence = float(np.nan_to_num(history.evidence[rank]))
        cells = [
            f"{rank}",
            history.hosts[rank],
            _or_blank(1e3 * own[rank], "{:,.1f}"),
            _or_blank(100 * slowdown[rank], "{:+.1f}"),
            _or_blank(1e3 * late[rank], "{:,.1f}"),
        ]
        rows.append((rank in accused, cells, round(100 * min(1.0, max(0.0, evidence)))))
    return rows


def _or_blank(value: float, form: str) -> str:
    # Adding 0 takes the sign from a zero.
    return form.format(round(value, 1) + 0.0) if math.isfinite(value) else "not known"


def _link_rows(history: History) -> list[tuple[bool, str, str, str, int, int, str]]:
    """(accused, from, to, ratio, width of its bar, evidence in percent, time lost)."""
    accused = {tuple(raised.verdict.ends) for raised in history.verdicts}
    rows = sorted(history.links, key=lambda row: -row.ratio)[:_MAX_LINKS]
    largest = max((row.ratio for row in rows), default=1.0)
    return [
        (
            (row.source, row.target) in accused,
            row.source,
            row.target,
            f"{row.ratio:,.2f}",
            round(100 * max(0.0, row.ratio) / max(largest, 1.0)),
            round(100 * min(1.0, max(0.0, row.evidence))),
            _time(max(0.0, row.lost_s)) if row.lost_s > 0 else "none",
        )
        for row in rows
    ]


def _clock_rows(history: History) -> list[tuple[str, str, str]]:
    """(host, offset, error), the farthest first."""
    rows = sorted(history.clock_offsets.items(), key=lambda item: -abs(item[1][0]))
    return [
        (host, f"{1e3 * offset_s:+,.3f}", f"{1e3 * sigma_s:,.3f}")
        for host, (offset_s, sigma_s) in rows[:_MAX_CLOCKS]
    ]


def _unseen(history: History, metrics: Metrics) -> list[str]:
    notes = list(history.notes)
    if metrics.unseen > 0:
        notes.append(f"{100 * metrics.unseen:.2g} % of all ranks' steps were not seen.")
    if not np.isfinite(history.late_s).any():
        notes.append("No arrival in a collective was seen: lateness is not known.")
    if not history.links and len(set(history.hosts)) > 1:
        notes.append("No transfer between hosts was measured: links were not judged.")
    return notes
