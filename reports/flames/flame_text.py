"""The markup of one box: its exact label, its tooltip, and as much text as fits inside."""

from __future__ import annotations

from relkit.reports.drawing import palette
from relkit.reports.drawing.markup import (
    NAME_LIMIT,
    cells,
    clean,
    display_name,
    end_cut,
    middle_cut,
    place,
    shown,
    xml,
)
from relkit.reports.drawing.rank_sets import SetTable
from relkit.reports.flames.flame_boxes import Box
from relkit.reports.flames.flame_layout import BoxRect, ends_here

CHAR = 7.3
"""Advance of one column at 12 px in any common monospaced font, rounded up. At 11 px: SMALL."""
SMALL = 6.7
PAD = 6.0
_SHOWN_LIMIT = 300
_CHAIN_LINES = 40

_KINDS = {"frame": "", "fold": " rk-fold", "inner": " rk-inner", "more": " rk-more"}


def box_markup(box: Box, spot: BoxRect, table: SetTable, present: int) -> str:
    """One `<g>`: title, rectangle, text, and the data from which the script draws it anew."""
    func, source, name, extra = _names(box)
    ranks = table.text(box.ranks)
    label = f"{func}@{source}@{ranks.label}"
    which = palette.family(func, source) if box.kind != "more" else palette.Family.ROLE
    level = 4 if box.absent else palette.rarity(ranks.count, present)
    data = [
        f'data-label="{xml(label)}"',
        f'data-c="{_utf16(func)}"',
        f'data-p="{box.parent}"',
        f'data-n="{ranks.count}"',
        f'data-s="{ranks.number}"',
    ]
    if name != func:
        data.append(f'data-t="{xml(name)}"')
    if extra:
        data.append(f'data-x="{xml(extra)}"')
    if ends_here(box):
        data.append('data-e="1"')
    mark, short = ranks.badge, ranks.short_badge
    if mark != "all":
        data.append(f'data-b="{mark}" data-q="{short}"')
    kind = _KINDS[box.kind] + (" rk-gone" if box.absent else "")
    hidden = ' style="display:none"' if box.hidden else ""
    width, height = max(0.5, spot.width - 1), max(0.0, spot.height - 1)
    return (
        f'<g class="rk-box rk-{which} rk-r{level}{kind}" '
        f'transform="translate({spot.x:.2f} {spot.y:g})" {" ".join(data)}{hidden}>'
        f"<title>{xml(_tooltip(box, label, which, present))}</title>"
        f'<rect width="{width:.2f}" height="{height:g}" rx="2"/>'
        f"{_text(name, extra, mark, short, spot.width, box.kind)}</g>\n"
    )


def _names(box: Box) -> tuple[str, str, str, str]:
    """(exact function, exact source, name to draw, dim addition to draw)."""
    if box.kind == "more":
        return f"+{box.count:,} more", "not drawn one by one", f"+{box.count:,} more", ""
    assert box.node is not None
    func = clean(middle_cut(box.node.func, NAME_LIMIT))
    source = clean(middle_cut(box.node.source, NAME_LIMIT))
    name = middle_cut(shown(display_name(func)), _SHOWN_LIMIT)
    if box.kind == "fold":
        return func, source, f"CPython \u00d7{box.count}", f"… {name}"
    which = palette.family(func, source)
    if which is palette.Family.STATE:
        return func, source, f"{name}: {shown(source)}", ""
    if func == palette.ROLE_FUNC:
        return func, source, f"{shown(source)} threads" if source != "main" else "main thread", ""
    return func, source, name, middle_cut(shown(place(source)), _SHOWN_LIMIT)


def _tooltip(box: Box, label: str, which: palette.Family, present: int) -> str:
    if box.absent:
        return f"{label}\n{box.size:,} ranks without a dump; nothing here clears them"
    counts = f"{box.size:,} of {present:,} ranks"
    if box.threads:
        counts += f", {box.threads:,} {'thread' if box.threads == 1 else 'threads'}"
    if box.kind == "more":
        rest = box.count - len(box.listed)
        lines = [f"{label}\n{counts}; the commonest stacks beside the rarer ones that are drawn:"]
        lines += box.listed
        if rest > 0:
            lines.append(f"and {rest:,} more; all are in the folded text file")
        return "\n".join(lines)
    names = ", ".join(box.node.names) if box.node else ""
    text = f"{label}\n{palette.HUES[which].title}; {counts}{': ' + names if names else ''}"
    if box.kind == "fold":
        chain = [middle_cut(func, 80) for func in box.listed[:_CHAIN_LINES]]
        left = box.count - len(chain)
        chain += [f"and {left} more"] if left else []
        text += f"\n{box.count} interpreter frames, click to unfold:\n" + "\n".join(chain)
    return text


def _text(name: str, extra: str, mark: str, short: str, width: float, kind: str) -> str:
    """Name at the left, ranks at the right, the place between them where there is room."""
    title, tail, right = fit(name, extra, mark, short, width)
    y = "11" if kind == "fold" else "14.5"
    out = ""
    if title:
        more = f'<tspan class="rk-src" dx="8">{xml(tail)}</tspan>' if tail else ""
        out = f'<text x="{PAD:g}" y="{y}">{xml(title)}{more}</text>'
    if right:
        out += f'<text class="rk-mark" x="{width - 1 - PAD:.2f}" y="{y}">{right}</text>'
    return out


def fit(name: str, extra: str, mark: str, short: str, width: float) -> tuple[str, str, str]:
    """What of (name, place, ranks) fits into a box this wide; flame_text.js has the same rules."""
    room = width - 1 - 2 * PAD
    need = max(1, cells(name))
    # Whole names go before long rank lists, and a cut name still goes with its ranks.
    for ranks, least in ((mark, need), (short, need), (mark, 10), (short, 10)):
        columns = int((room - len(ranks) * SMALL - 10) / CHAR)
        if columns >= least:
            title = end_cut(name, columns)
            left = int((room - len(ranks) * SMALL - 18 - cells(title) * CHAR) / SMALL)
            tail = extra if extra and title == name and cells(extra) <= left else ""
            return title, tail, ranks
    columns = int(room / CHAR)
    return (end_cut(name, columns) if columns >= min(4, need) else ""), "", ""


def _utf16(text: str) -> int:
    """How long a script finds it."""
    # Python loads that encoding from a file; most pictures have no need of it.
    return (
        len(text) if text.isascii() else len(text.encode("utf-16-le", errors="surrogatepass")) // 2
    )
