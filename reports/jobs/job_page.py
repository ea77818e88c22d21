"""A job as one self-contained page: what happened, hangs, stragglers, network, saves, restarts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from relkit import __version__
from relkit.accounting.progress import HUNG
from relkit.accounting.report import HEADER, rows_of
from relkit.findings import Finding, Report, Status, worst
from relkit.job_page.parts import JobParts, recovery_rows
from relkit.live_job.report import rate_words
from relkit.live_job.saved import Saved, age_words, saved_words
from relkit.reports.hangs import hang_page
from relkit.reports.html import environment, page_time, style_and_policy
from relkit.reports.html import headline as hang_headline
from relkit.reports.jobs import step_strip
from relkit.reports.straggler import straggler_heat
from relkit.straggler.present.metrics import metrics_of

MAX_FINDINGS = 16
MAX_EVENTS = 60
_TITLES = {
    "straggler": "Stragglers",
    "netcheck": "Network check",
    "linkcheck": "Links inside a host",
    "ttp": "Checkpoints: saved by survivors",
    "flash": "Checkpoints: kept from memory",
}
_STATES = {
    "running": "runs", "recovering": "is being restarted", "succeeded": "has succeeded",
    "failed": "has failed", "ended": "was ended", "gone": "has gone without a word",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Section:
    """What one report says.

    Args:
        place: of the link; title: heading.
        findings: the worst first; left_out: how many more there are.
        picture: drawn, and safe; "" for none; label: of it.
    """

    place: str
    title: str
    findings: tuple[Finding, ...]
    left_out: int = 0
    picture: Markup = Markup("")  # noqa: RUF009  it never changes
    label: str = ""


@dataclass(frozen=True, slots=True)
class _Happened:
    """A row of what happened; its time is UTC, as all times of a page are."""

    time: str
    what: str
    text: str
    status: str


def render(parts: JobParts, *, draw_with_graphviz: bool = True) -> str:
    """The page as text.

    Args:
        parts: what is kept of the job.
        draw_with_graphviz: see hang_page.render.
    """
    sections = list(_sections(parts))
    account = parts.account
    facts = {} if account is None else account.facts
    recoveries = recovery_rows(parts)
    happened = [
        _Happened(page_time(event.at_unix_s), event.what.value, event.text, event.finding)
        for event in parts.events[-MAX_EVENTS:]
    ]
    hang = parts.hang
    hang_findings = _worst_first(hang.report) if hang is not None else ()
    lanes = graph = Markup("")
    if hang is not None:
        # These escape every name.
        graph = Markup(hang_page.graph_of(hang.picture, draw_with_graphviz))  # noqa: S704
        lanes = Markup(hang_page.lanes_of(hang.picture))  # noqa: S704
    return (
        environment()
        .get_template("job.html.j2")
        .render(
            job_id=parts.job_id,
            status=_status(parts).value,
            headline=_headline(parts),
            lead=_lead(parts),
            tiles=_tiles(facts),
            strip=Markup(step_strip.render(parts.straggler) if parts.straggler else ""),  # noqa: S704
            strip_key=[(kind, step_strip.NAMES[kind]) for kind in step_strip.KINDS],
            happened=happened,
            happened_left_out=max(0, len(parts.events) - MAX_EVENTS),
            hang=hang,
            hang_findings=hang_findings[:MAX_FINDINGS],
            hang_left_out=max(0, len(hang_findings) - MAX_FINDINGS),
            graph=graph,
            lanes=lanes,
            done=hang_page.actions_of(hang) if hang else (),
            sections=sections,
            columns=HEADER,
            rows=rows_of(recoveries) if recoveries is not None else (),
            account_findings=account.findings if account is not None else (),
            notes=parts.notes,
            folder=str(parts.folder or ""),
            made=page_time(account.started) if account is not None and account.started else "",
            version=__version__,
            **style_and_policy(
                "report.css", "straggler.css", "hang.css", "job.css", rules=straggler_heat.css()
            ),
        )
    )


def _sections(parts: JobParts) -> Iterator[_Section]:
    for about, title in _TITLES.items():
        report = parts.reports.get(about)
        if report is None:
            continue
        findings = _worst_first(report)
        picture = Markup("")
        history = parts.straggler if about == "straggler" else None
        if history is not None and history.steps:
            picture = Markup(straggler_heat.render(history, metrics_of(history)))  # noqa: S704
        yield _Section(
            about,
            title,
            findings[:MAX_FINDINGS],
            max(0, len(findings) - MAX_FINDINGS),
            picture,
            "Slowdown of each rank, step by step",
        )


def _worst_first(report: Report) -> tuple[Finding, ...]:
    order = (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.OK, Status.SKIP)
    return tuple(sorted(report.findings, key=lambda finding: order.index(finding.status)))


def _status(parts: JobParts) -> Status:
    """Of the job where that is known: a job that went on after a hang is no failure."""
    if _is_hung(parts):
        return Status.FAIL
    if parts.account is not None and parts.account.findings:
        return parts.account.status
    reports = [*parts.reports.values(), *([parts.hang.report] if parts.hang else [])]
    return worst(report.status for report in reports)


def _is_hung(parts: JobParts) -> bool:
    """Now, as its launcher says."""
    return parts.account is not None and _live(parts.account.facts).get("health") == HUNG


def _headline(parts: JobParts) -> str:
    state = str(parts.account.facts.get("state", "")) if parts.account is not None else ""
    if _is_hung(parts):
        return "The job hangs"
    if state in _STATES:
        return f"The job {_STATES[state]}"
    if parts.hang is not None:
        report = parts.hang.report
        return hang_headline(report, [r for r in report.facts.get("culprits", []) if r >= 0])
    return "What is kept of the job"


def _lead(parts: JobParts) -> str:
    """The newest verdict, which is what most people look for."""
    if parts.hang is not None:
        faults = _worst_first(parts.hang.report)
        return faults[0].title if faults else ""
    for report in (*parts.reports.values(), *([parts.account] if parts.account else [])):
        bad = [f for f in _worst_first(report) if f.status is Status.FAIL]
        if bad:
            return bad[0].title
    return ""


def _live(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    live = facts.get("live")
    return live if isinstance(live, Mapping) else {}


def _tiles(facts: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Name, value and remark of what one looks at first."""
    live, restarts = _live(facts), facts.get("restarts")
    tiles = []
    if live.get("ranks"):
        nodes = live["of_nodes"] or 1
        tiles.append(("ranks", f"{live['ranks']:,}", f"on {nodes:,} node{'s'[: nodes > 1]}"))
    if live.get("step") is not None:
        total = f"of {live['steps_total']:,}" if live.get("steps_total") else ""
        tiles.append(("newest step", f"{live['step']:,}", total))
    if live.get("rate_per_s"):
        eta = f"{age_words(live['eta_s'])} to go" if live.get("eta_s") is not None else ""
        tiles.append(("rate", rate_words(live["rate_per_s"]), eta))
    if isinstance(restarts, Mapping):
        causes = ", ".join(f"{cause}: {count}" for cause, count in restarts.items())
        tiles.append(("restarts", str(sum(restarts.values())), causes))
    if isinstance(facts.get("ettr"), float):
        tiles.append(("productive", f"{facts['ettr']:.1%}", "of the launcher's time (ETTR)"))
    if live.get("saved"):
        saved = [Saved(**each) for each in live["saved"]]
        tiles.append(("last checkpoint", f"{max(s.step for s in saved):,}", saved_words(saved)))
    return tiles
