"""What all pages are made with: templates, filters that make hostile text safe, styles, policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from functools import lru_cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

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

_TEXT_LIMIT = 4000

_TABS = {"mixed": "Python + native", "py": "Python", "cpp": "Native"}
# The finding on links that are cut or slow; it comes first where no rank is at fault.
_BAD_LINK = "RK-HANG-024"


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
            what = "failed" if report.facts.get("is_hang") is False else "hangs"
            return f"The job {what}; no rank stands out{suspect}"
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


def _text(value: object) -> str:
    return "" if value is None else str(value)


def page_time(started: float) -> str:
    """A Unix time for the head of a page; "" for one that is no time."""
    try:
        moment = datetime.fromtimestamp(started, tz=timezone.utc)
    except (OverflowError, ValueError, OSError):
        return ""
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


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
