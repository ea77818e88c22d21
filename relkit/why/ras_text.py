"""What `ncclras` prints, as text or JSON -> which ranks stay behind or are gone; pure.

Source: NCCL 2.24 to 2.31, src/ras/client_support.cc.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from relkit.nccl_ras.model import RasCommunicator
from relkit.nccl_ras.parse import parse_answer
from relkit.ranks import RankSet
from relkit.why.model import HangWord

# One look does not show that a job stands: it may be between two calls.
_BEHIND, _GONE = 0.55, 0.75
_MAX_LINES = 200_000
_MAX_LINE = 512
_TITLE = re.compile(r"^#\d+-\d+ \([0-9a-f]{1,32}\) ([A-Z_]+)")
_COUNT = re.compile(
    r"^\s+(\d{1,7}) ranks? (?:has|have) launched up to operation (\d{1,18})\b", re.A
)
_RANK = re.compile(r"^\s+Rank (\d{1,7}) -- ", re.ASCII)
_MISSING = re.compile(r"^\s+Missing communicator data from (\d{1,7}) job process", re.ASCII)
_DEAD = re.compile(r"\bconsidered dead\b|\bunreachable\b|^\s*DEAD\b", re.IGNORECASE)


def is_ras_json(plain: object) -> bool:
    """Whether a document is RAS's."""
    return isinstance(plain, dict) and {"nccl_version", "communicators"} <= plain.keys()


def is_ras_text(lines: Sequence[str]) -> bool:
    """Whether a text is what `ncclras` prints."""
    head = [line.strip() for line in lines[:40]]
    return "Job summary" in head and any(line.startswith("NCCL version ") for line in head)


def word_of_json(data: bytes) -> HangWord:
    """The verdict on an answer.

    Args:
        data: the document.

    Raises:
        ValueError: it is none of RAS's.
    """
    answer = parse_answer(data)
    largest = max((each.size for each in answer.communicators), default=0)
    alike = [each for each in answer.communicators if each.size == largest]
    if len(alike) != 1 or largest < 2:
        # Which ranks of the job these are is not told.
        return HangWord((), "NCCL's RAS lists no communicator of the whole job", 0.0)
    return _word_of(alike[0])


def _word_of(communicator: RasCommunicator) -> HangWord:
    totals = {rank.rank: rank.total for rank in communicator.ranks}
    gone = [each.rank for each in communicator.missing if each.dead or each.unresponsive]
    return _verdict(totals, gone, communicator.size)


def word_of_text(lines: Sequence[str]) -> HangWord:
    """The verdict on what `ncclras` prints; it lists the ranks of the smaller groups alone.

    Args:
        lines: of it.
    """
    totals: dict[int, int] = {}
    counts: dict[int, int] = {}
    at = -1
    title = ""
    for line in (whole[:_MAX_LINE] for whole in lines[:_MAX_LINES]):
        if (begin := _TITLE.match(line)) is not None:
            if counts:
                break
            title, at = begin[1], -1
        elif (count := _COUNT.match(line)) is not None and title == "MISMATCH":
            at = int(count[2])
            counts[at] = counts.get(at, 0) + int(count[1])
        elif at >= 0 and (rank := _RANK.match(line)) is not None:
            totals[int(rank[1])] = at
    # Those that are not listed are with the most.
    front = max(counts, default=0)
    listed = {rank: number for rank, number in totals.items() if number < front}
    if not counts:
        missing = sum(int(m[1]) for line in lines[:_MAX_LINES] if (m := _MISSING.match(line)))
        some = f"{missing} processes give no data" if missing else "all ranks are alike"
        return HangWord((), f"by NCCL's RAS {some}", 0.0)
    return _behind(listed, front, len(listed) + counts[front])


def _verdict(totals: Mapping[int, int], gone: Sequence[int], size: int) -> HangWord:
    if gone and 2 * len(gone) <= size:
        verb = "does" if len(gone) == 1 else "do"
        return HangWord(
            tuple(sorted(gone)),
            f"{RankSet.of(gone).in_words()} {verb} not answer NCCL's RAS, the others do",
            _GONE,
        )
    return _behind(totals, max(totals.values(), default=0), len(totals))


def _behind(totals: Mapping[int, int], most: int, known: int) -> HangWord:
    """The verdict on who stays behind.

    Args:
        totals: collectives by rank, at least of those that have launched fewer than the most.
        most: collectives that a rank has launched; known: of so many ranks that is told.
    """
    lowest = min(totals.values(), default=most)
    behind = sorted(rank for rank, total in totals.items() if total == lowest)
    if lowest == most or 2 * len(behind) > known:
        return HangWord((), "by NCCL's RAS no few ranks stay behind the others", 0.0)
    verb = "has" if len(behind) == 1 else "have"
    return HangWord(
        tuple(behind),
        f"{RankSet.of(behind).in_words()} {verb} launched {lowest} collectives, others {most}, by "
        "NCCL's RAS: the others wait for what was not launched",
        _BEHIND,
    )
