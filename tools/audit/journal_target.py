"""Journals of launchers: what was read of one can always be shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relkit.accounting.journal_folder import JournalFile
from relkit.accounting.read_journal import read_journal
from relkit.accounting.records import What
from relkit.accounting.report import HEADER, report_of, rows_of
from relkit.output import as_json, as_text
from relkit.process.identity import ProcessIdentity
from relkit.reports import recovery_page
from tests.unit.accounting.stories import Story
from tools.audit.target import Target, reads_file


def _journals(_: Path) -> Sequence[bytes]:
    stories = (
        Story().attempt(0, 10).fault("hang").attempt(8, 20, number=1),
        Story().attempt(0, 3).fault().attempt(0, 9).fault("nodes changed").add(What.ATTEMPT),
        Story().add(What.ATTEMPT).add(What.OPERATION, 1.0).add(What.ENDED, 5.0, name="failed"),
        Story().add(What.FULL),
    )
    return [b"".join(record.to_line() for record in story.records) for story in stories]


def _read(path: Path) -> None:
    journal = read_journal(JournalFile(path, ProcessIdentity(1, 1, 1)))
    report = report_of([journal, journal], argv=(), started=0.0)
    assert all(len(row) == len(HEADER) for row in rows_of(report.facts))
    as_text(report)
    as_json(report)
    recovery_page.render(report)
    ettr = report.facts["ettr"]
    assert ettr is None or 0.0 <= ettr <= 1.0


JOURNALS = Target(
    "journals", "journals of launchers, their page", _journals,
    reads_file("1-1.journal", _read), "json",
)  # fmt: skip
