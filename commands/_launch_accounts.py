"""The account of a run with restarts, in the timeline folder of `relkit launch`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from relkit.accounting.journal import Journal
from relkit.accounting.records import Record
from relkit.commands._incident import log
from relkit.launch.accounting.accounts import Accounts

REPORT, PAGE = "recovery.json", "recovery.html"


def accounts_into(folder: Path) -> Accounts:
    """The accounts of this launcher.

    Args:
        folder: the timeline folder, where recovery.json and recovery.html go after restarts.
    """

    def ended(records: Sequence[Record]) -> None:
        # Only here: most runs need neither the report nor the page.
        from relkit.accounting.report import run_report
        from relkit.commands._incident import keep_report, log_unwritten
        from relkit.errors import RelkitError
        from relkit.output import write_atomic
        from relkit.reports import html

        report = run_report(records, argv=tuple(sys.argv))
        if not report.facts["restarts"]:
            return
        keep_report(report, folder / REPORT)
        try:
            write_atomic(folder / PAGE, html.render(report, {}))
        except (RelkitError, OSError) as error:
            log_unwritten(error)
            return
        log(f"what each restart took is in {folder / PAGE}")

    return Accounts(Journal, log, ended)
