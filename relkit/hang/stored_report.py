"""report.json of a hang, read back: whoever may have written it, it becomes a Report or an error.

Its verdict is the one that stands: it was reached with more than the folder holds, such as the
CPU use of each rank and the exit codes of the dead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice
from typing import Any

from relkit.findings import Evidence, Finding, Report, Status
from relkit.hang.model import Category, CpuUse, Culprit, HangVerdict, RankView, Victims
from relkit.hang.words import shortened
from relkit.hook.model import HookState
from relkit.hook.stored_state import stored_state
from relkit.text.printable import printable_line
from relkit.text.whole_number import whole_number

SCHEMA = "relkit.hang/1"
MAX_TEXT = 2000
# Of a folded set of ranks or hosts, which may not be cut: its last number would be another one.
MAX_FOLD = 1 << 20
MAX_ITEMS = 20_000
MAX_FINDINGS = 256
# A job of more ranks is none: what is made for each of them would fill the memory.
MAX_WORLD = 1 << 17

_ROW_TEXTS = ("host", "state", "activity", "in_flight", "note")
_ROW_NUMBERS = ("pid", "last_seq", "exit_code", "in_flight_s", "idle_s", "cpu_share")
Plain = Mapping[str, Any]


class BadReport(ValueError):
    """The document is no report of a hang; the text says why."""


def report_of(plain: object) -> Report:
    """The report that a document holds, with nothing in it that is not of its type.

    Args:
        plain: of report.json, as JSON types.

    Raises:
        BadReport: it is none of a hang.
    """
    if not isinstance(plain, Mapping):
        raise BadReport("it is not a JSON object")
    if plain.get("schema") != SCHEMA:
        raise BadReport(f"it is {_text(plain.get('schema')) or 'of no schema'}, not {SCHEMA}")
    world_size = plain.get("world_size")
    if type(world_size) is not int or not 0 < world_size <= MAX_WORLD:
        raise BadReport(f"it says nothing usable of the number of ranks: {str(world_size)[:40]}")
    meta = _mapping(plain.get("meta"))
    return Report(
        command="hang",
        findings=tuple(finding_of(each) for each in _mappings(plain.get("findings"), MAX_FINDINGS)),
        facts={
            **{key: _text(plain.get(key)) for key in ("job_id", "trigger", "verdict")},
            "absent": _text(plain.get("absent"), MAX_FOLD),
            "world_size": world_size,
            "hang_timeout_s": _number(plain.get("hang_timeout_s")) or 0.0,
            "is_hang": plain.get("is_hang") is not False,
            "action": _text(plain.get("action")),
            "culprits": [
                rank for rank in _list(plain.get("culprits")) if _is_rank(rank, world_size)
            ],
            "culprit_details": [_culprit(each) for each in _mappings(plain.get("culprit_details"))],
            "victims": [
                {
                    "ranks": _text(each.get("ranks"), MAX_FOLD),
                    "sentence": _text(each.get("sentence")),
                }
                for each in _mappings(plain.get("victims"))
            ],
            "ranks": [
                _row(each)
                for each in _mappings(plain.get("ranks"), MAX_WORLD)
                if _is_rank(each.get("rank"), world_size)
            ],
            "deaths": [_death(each) for each in _mappings(plain.get("deaths"))],
            "suspicions": [
                {
                    "ranks": _text(each.get("ranks"), MAX_FOLD),
                    "sentence": _text(each.get("sentence")),
                    "manner": _text(each.get("manner")),
                    "stalled_s": _number(each.get("stalled_s")),
                }
                for each in _mappings(plain.get("suspicions"), MAX_FINDINGS)
            ],
        },
        started=_number(meta.get("started")) or 0.0,
        duration_s=_number(meta.get("duration_s")) or 0.0,
        argv=tuple(_text(word) for word in _list(meta.get("argv"))[:1000]),
    )


def recorders_of(plain: object) -> tuple[dict[int, HookState], list[str]]:
    """The recorders that a report keeps of ranks without a .stacktrace file.

    Returns:
        By rank; and what could not be read, a sentence each.
    """
    states: dict[int, HookState] = {}
    unread: list[str] = []
    recorders = plain.get("recorders") if isinstance(plain, Mapping) else None
    for name, text in islice(_mapping(recorders).items(), MAX_WORLD):
        rank = whole_number(name, MAX_WORLD - 1)
        try:
            if rank is None or not isinstance(text, str):
                raise ValueError("it is not the text of a rank's recorder")
            states[rank] = stored_state(text)
        except ValueError as error:
            unread.append(f"report.json: the recorder of rank {name[:20]} cannot be read: {error}")
    return states, unread


def views_of(report: Report) -> dict[int, RankView]:
    """What the rows of a report's ranks say, without recorders and stacks."""
    return {row["rank"]: _view(row) for row in report.facts["ranks"]}


def verdict_of(report: Report) -> HangVerdict:
    """The verdict in a report's facts; of categories that this relkit does not know, none."""
    known = {category.value: category for category in Category}
    facts = report.facts
    culprits = [
        Culprit(
            rank=each["rank"],
            host=each["host"],
            pid=each["pid"],
            category=known[each["category"]],
            sentence=each["sentence"],
            reasons=tuple(each["reasons"]),
            score=each["score"],
        )
        for each in facts["culprit_details"]
        if each["category"] in known and _is_rank(each["rank"], facts["world_size"])
    ]
    return HangVerdict(
        tuple(culprits),
        tuple(Victims(each["ranks"], each["sentence"]) for each in facts["victims"]),
        "" if culprits else facts["verdict"],
    )


def unknown_faults(report: Report) -> list[str]:
    """A sentence for each fault of a category that this relkit does not know."""
    known = {category.value for category in Category}
    return [
        f"report.json: rank {each['rank']} has a fault that this relkit does not know: "
        f"{each['category'] or 'it has no name'}"
        for each in report.facts["culprit_details"]
        if each["category"] not in known
    ]


def _view(row: Plain) -> RankView:
    is_alive = row["alive"] is True
    share = row["cpu_share"]
    return RankView(
        rank=row["rank"],
        host=row["host"],
        pid=int(row["pid"] or 0),
        alive=is_alive,
        process_state=row["state"],
        cpu=CpuUse() if share is None else CpuUse(share, 1.0),
        exit_code=row["exit_code"],
        absent_reason="" if is_alive or row["exit_code"] is not None else row["note"],
    )


def _row(plain: Plain) -> dict[str, Any]:
    row: dict[str, Any] = {"rank": plain["rank"], "alive": plain.get("alive") is True}
    row |= {name: _text(plain.get(name)) for name in _ROW_TEXTS}
    row |= {name: _number(plain.get(name)) for name in _ROW_NUMBERS}
    for name in ("pid", "last_seq", "exit_code"):
        row[name] = None if row[name] is None else int(row[name])
    return row


def _culprit(plain: Plain) -> dict[str, Any]:
    rank, score = plain.get("rank"), _number(plain.get("score")) or 0.0
    return {
        "rank": rank if type(rank) is int else -1,
        "host": _text(plain.get("host")),
        "pid": int(_number(plain.get("pid")) or 0),
        "category": _text(plain.get("category")),
        "sentence": _text(plain.get("sentence")),
        "reasons": [_text(reason) for reason in _list(plain.get("reasons"))[:40]],
        "score": min(1.0, max(0.0, float(score))),
    }


def _death(plain: Plain) -> dict[str, Any]:
    """What is known of a death: texts, numbers and lines of text."""
    kept: dict[str, Any] = {}
    for key, value in list(plain.items())[:40]:
        if isinstance(value, list):
            kept[_text(key)] = [_text(line) for line in value[:100]]
        elif isinstance(value, str):
            kept[_text(key)] = _text(value)
        elif value is None or isinstance(value, bool) or _number(value) is not None:
            kept[_text(key)] = value
    return kept


def finding_of(plain: Plain) -> Finding:
    status = _text(plain.get("status"))
    return Finding(
        id=_text(plain.get("id")),
        status=Status(status) if status in {s.value for s in Status} else Status.UNKNOWN,
        title=_text(plain.get("title")),
        ranks=_text(plain.get("ranks"), MAX_FOLD),
        nodes=_text(plain.get("nodes"), MAX_FOLD),
        reasons=tuple(_text(reason) for reason in _list(plain.get("reasons"))[:40]),
        evidence=tuple(_evidence(each) for each in _mappings(plain.get("evidence"), 100)),
        advice=_text(plain.get("advice")),
    )


def _evidence(plain: Plain) -> Evidence:
    threshold = plain.get("threshold")
    return Evidence(
        name=_text(plain.get("name")),
        value=_value(plain.get("value")),
        unit=_text(plain.get("unit")),
        threshold=None if threshold is None else _value(threshold),
        how=_text(plain.get("how")),
    )


def _value(value: object) -> float | int | str:
    number = _number(value)
    return _text(value) if number is None else number


def _text(value: object, longest: int = MAX_TEXT) -> str:
    """One line of bounded length; "" for what is no text."""
    if isinstance(value, str):
        return printable_line(shortened(value, longest))
    return str(value) if type(value) in (int, float) and _number(value) is not None else ""


def _number(value: object) -> float | int | None:
    if type(value) is int and abs(value) < 1 << 62:
        return value
    return value if type(value) is float and math.isfinite(value) else None


def _is_rank(value: object, world_size: int) -> bool:
    return type(value) is int and 0 <= value < world_size


def _list(value: object) -> list[Any]:
    return value[:MAX_WORLD] if isinstance(value, list) else []


def _mapping(value: object) -> Plain:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: object, most: int = MAX_ITEMS) -> list[Plain]:
    return [each for each in _list(value)[:most] if isinstance(each, Mapping)]
