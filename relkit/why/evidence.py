"""The files of one job -> its evidence: what was said, and what dumps and stacks show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from relkit.findings import Report
from relkit.why.hang_files import hang_of
from relkit.why.kinds import FOR_HANG
from relkit.why.model import Evidence, FileFacts

_STACKS = re.compile(r"\bstacks\b|py-spy's text")


def evidence_of(facts: Sequence[FileFacts]) -> tuple[Evidence, Report | None]:
    """What was said of a job, and the report on the hang that dumps and stacks show, if any.

    Args:
        facts: of each of its files.
    """
    word, report, notes = hang_of([each.read_as for each in facts if each.for_hang])
    if word is None or not word.culprits:
        # The surest of those that name somebody.
        said = [each.word for each in facts if each.word is not None and each.word.culprits]
        word = max(said, key=lambda each: each.score, default=word)
        report = report if word is None or not word.culprits else None
    files = []
    for each in facts:
        file = each.source
        note = notes.get(each.read_as)
        if note and file.used_for in FOR_HANG:
            file = replace(file, used_for="", note=note)
        elif note and _STACKS.search(note):
            # Of a log in which stacks stand the rest was used.
            file = replace(file, note="; ".join(filter(None, (file.note, note))))
        files.append(file)
    evidence = Evidence(
        sightings=tuple(s for each in facts for s in each.sightings),
        outlived=tuple(s for each in facts for s in each.outlived),
        ended=tuple(e for each in facts for e in each.ended),
        speakers=frozenset(s for each in facts for s in each.speakers),
        files=tuple(files),
        hang=word,
        processes=frozenset(s for each in facts for s in each.processes),
        present=frozenset(s for each in facts for s in each.present),
        world_size=max((each.world_size for each in facts), default=0),
    )
    return evidence, report
