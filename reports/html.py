"""A report as one self-contained HTML page: the verdict first, the stacks inlined below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import lru_cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from relkit.accounting.report import HEADER, rows_of
from relkit.findings import Evidence, Report, Status, docs_of
from relkit.reports.drawing.content_policy import policy
from relkit.reports.drawing.markup import middle_cut, shown
from relkit.reports.flames.flame_svg import (
    policy_block,
    script_block,
    script_text,
    style_block,
    style_text,
)

MAX_RANK_ROWS = 512
_TEXT_LIMIT = 4000

_TABS = {"mixed": "Python + native", "py": "Python", "cpp": "Native"}
_FIRST_COLUMNS = ("rank", "host", "pid", "state", "activity")
_MAX_COLUMNS = 9
# The finding on links that are cut or slow; it comes first where no rank is at fault.
_BAD_LINK = "RK-HANG-024"


@dataclass(frozen=True, slots=True)
class _Row:
    cells: tuple[str, ...]
    culprit: bool


@lru_cache
def environment() -> Environment:
    """The templates of all pages, with the filters that make hostile text safe to show."""
    environment = Environment(
        loader=PackageLoader("relkit.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plain"] = _plain
    environment.filters["prose"] = _prose
    environment.filters["finding_id"] = _finding_id
    environment.filters["heading"] = _heading
    environment.filters["measure"] = _measure
    environment.filters["bound"] = _bound
    return environment


def style_and_policy(*names: str, rules: str = "", has_flames: bool = False) -> dict[str, Markup]:
    """The style sheet of a page, and the policy that allows it, as the templates take them.

    Args:
        names: style sheets in the folder of templates; rules: more of them, made by relkit.
        has_flames: the page has flame pictures, which bring a style and a script.
    """
    sheets = [environment().get_template(name).render() for name in names]
    style = "\n".join(["", *sheets, rules, ""])
    allowed = policy(
        styles=[style, style_text()] if has_flames else [style],
        scripts=[script_text()] if has_flames else [],
    )
    # Both are made of relkit's own files and rules alone.
    return {"style": Markup(style), "policy": Markup(allowed)}  # noqa: S704


def render(report: Report, svgs: Mapping[str, str]) -> str:
    """The whole page as text.

    Args:
        report: findings and facts; of the facts it shows `culprits`, `victims`, `ranks`,
            `trigger`, `job_id` and `recoveries`, each only where it is there.
        svgs: pictures by view ("mixed", "py", "cpp"; other names become their own titles), as
            flame_svg.render made them; nothing in them is escaped.
    """
    facts = report.facts
    culprits = _numbers(facts.get("culprits"))
    columns, rows, left_out = _rank_table(facts.get("ranks"), culprits)
    faults = [f for f in report.findings if f.status in (Status.FAIL, Status.UNKNOWN)]
    others = [f for f in report.findings if f not in faults]
    lead = faults[0] if faults else (others[0] if others else None)
    if lead and lead.title.startswith(("rank", "the link")):
        lead = replace(lead, title=f"{lead.title[0].upper()}{lead.title[1:]}")
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            headline=headline(report, culprits),
            lead=lead,
            rest=[*faults[1:], *others] if faults else others[1:],
            culprits=culprits,
            victims=_victims(facts.get("victims")),
            trigger=_text(facts.get("trigger")),
            job_id=_text(facts.get("job_id")),
            columns=columns,
            rows=rows,
            left_out=left_out,
            restarts=_restarts(facts),
            evidence=[(finding, item) for finding in report.findings for item in finding.evidence],
            tabs=flame_tabs(svgs),
            started=page_time(report.started),
            version=report.to_json()["meta"]["version"],
            **style_and_policy("report.css", has_flames=bool(svgs)),
        )
    )


# What a rank, or several, did to the job, by category, where they do not simply hold it up.
_DEEDS = {
    "dead": ("took the job down", "took the job down"),
    "slow-exit": ("is slow to exit", "are slow to exit"),
}


def headline(report: Report, culprits: Sequence[int]) -> str:
    """The verdict in a few words."""
    if report.command == "hang" or culprits:
        details = report.facts.get("culprit_details")
        first = details[0] if isinstance(details, list) and details else None
        category = str(first.get("category")) if isinstance(first, Mapping) else ""
        if not culprits:
            is_network = bool(report.findings) and report.findings[0].id == _BAD_LINK
            suspect = ", but the network between its nodes does" if is_network else ""
            return f"The job hangs; no rank stands out{suspect}"
        deed, deeds = _DEEDS.get(category, ("holds up the job", "hold up the job"))
        if len(culprits) == 1:
            return f"Rank {culprits[0]} {deed}"
        names = ", ".join(str(rank) for rank in culprits[:6])
        more = f" and {len(culprits) - 6:,} more" if len(culprits) > 6 else ""
        return f"Ranks {names}{more} {deeds}"
    return {
        Status.FAIL: "A problem was found",
        Status.UNKNOWN: "relkit could not tell",
        Status.WARN: "Nothing is broken; something deserves a look",
    }.get(report.status, "Nothing is wrong")


def _restarts(facts: Mapping[str, object]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Columns and rows of a job's restarts, where the report is of a job that had some."""
    if "recoveries" not in facts:
        return (), ()
    return HEADER, rows_of(facts)


def _numbers(value: object) -> list[int]:
    return [item for item in value if isinstance(item, int)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return "" if value is None else str(value)


def page_time(started: float) -> str:
    """A Unix time for the head of a page; "" for one that is no time."""
    try:
        moment = datetime.fromtimestamp(started, tz=timezone.utc)
    except (OverflowError, ValueError, OSError):
        return ""
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _victims(value: object) -> list[tuple[str, str]]:
    """(ranks, sentence) of each class; from mappings or from plain sentences."""
    victims: list[tuple[str, str]] = []
    for item in value if isinstance(value, (list, tuple)) else []:
        if isinstance(item, Mapping):
            victims.append((_text(item.get("ranks")), _text(item.get("sentence"))))
        else:
            victims.append(("", _text(item)))
    return victims


def _rank_table(value: object, culprits: Sequence[int]) -> tuple[list[str], list[_Row], int]:
    """Columns, rows (culprits first) and how many rows were left out."""
    entries = (
        [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
    )
    keys: dict[str, None] = dict.fromkeys(_FIRST_COLUMNS)
    for entry in entries[:MAX_RANK_ROWS]:
        keys.update({str(key): None for key, cell in entry.items() if _is_cell(cell)})
    # A column that is empty, or says "yes" of everybody, tells nobody anything.
    columns = [key for key in keys if any(_tells(entry.get(key)) for entry in entries)]
    columns = columns[:_MAX_COLUMNS]
    place = {rank: i for i, rank in enumerate(culprits)}
    entries.sort(key=lambda entry: place.get(entry.get("rank", -1), len(place)))
    rows = [
        _Row(tuple(_cell(entry.get(key)) for key in columns), entry.get("rank") in place)
        for entry in entries[:MAX_RANK_ROWS]
    ]
    return columns, rows, max(0, len(entries) - MAX_RANK_ROWS)


def _is_cell(value: object) -> bool:
    return value is None or isinstance(value, (str, int, float))


def _tells(value: object) -> bool:
    return value not in (None, "") and value is not True


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}" if value == 0 or abs(value) >= 1 else f"{value:.3g}"
    return str(value)


def _plain(value: object) -> str:
    """Any text made safe to show: one line, no control characters, bounded length."""
    return shown(middle_cut(_text(value), _TEXT_LIMIT))


def _heading(key: str) -> str:
    """A JSON key as a column's heading: `in_flight_s` is "in flight (s)"."""
    name, unit = (key[:-2], " (s)") if key.endswith("_s") else (key, "")
    return _plain(name.replace("_", " ") + unit)


def _prose(value: object) -> Markup:
    """A sentence in which `names` between backticks become code; all of it is escaped first."""
    parts = str(escape(_plain(value))).split("`")
    if len(parts) % 2 == 0:
        return Markup("`").join(Markup(part) for part in parts)  # noqa: S704
    marked = [f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts)]
    return Markup("".join(marked))  # noqa: S704


def _finding_id(value: str) -> Markup:
    """A finding's id: a link where RELKIT_DOCS_URL names a site, else its place is a tooltip."""
    name, place = _plain(value), docs_of(value)
    if "://" in place:
        return Markup('<a href="{}"><code>{}</code></a>').format(place, name)
    return Markup('<code title="{}">{}</code>').format(place, name)


def _measure(item: Evidence) -> str:
    return f"{_cell(item.value)} {item.unit}".strip()


def _bound(item: Evidence) -> str:
    return "" if item.threshold is None else f"{_cell(item.threshold)} {item.unit}".strip()


def flame_tabs(svgs: Mapping[str, str]) -> list[tuple[str, str, Markup]]:
    """(name, label, picture) of each flame picture, to be put into one page.

    Style and script are the same in each, so one copy of each is enough.

    Args:
        svgs: by view ("mixed", "py", "cpp"), from flame_svg.render.
    """
    tabs = []
    known = [name for name in _TABS if name in svgs]
    ordered = [*known, *(name for name in svgs if name not in _TABS)]
    for i, name in enumerate(ordered):
        # The page has a policy of its own, in its head.
        text = svgs[name].replace(policy_block(), "", 1)
        if i > 0:
            text = text.replace(style_block(), "", 1)
        if i < len(ordered) - 1:
            text = text.replace(script_block(), "", 1)
        # Made by flame_svg.render, which escapes every name; see there.
        tabs.append((name, _TABS.get(name, name), Markup(text)))  # noqa: S704
    return tabs
