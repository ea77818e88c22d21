"""Breaks of the accounts of a job: journals, phases, steps lost, ETTR."""

from __future__ import annotations

from tools.mutants.model import Break

_ACCOUNT = ("tests/unit/accounting/test_account.py",)
_ACCOUNTS = ("tests/unit/launch/accounting/test_accounts.py",)
_AGENT = ("tests/unit/launch/accounting/test_accounted_agent.py",)
_JOURNAL = ("tests/unit/accounting/test_journal.py",)
_STATUS = ("tests/commands/test_status.py",)

BREAKS = (
    # Steps that are done again count as productive.
    Break(
        "relkit/accounting/attempts.py",
        "min(attempt.last.number, resumed_at)",
        "attempt.last.number",
        _ACCOUNT,
    ),
    # Only the attempt right before loses steps.
    Break(
        "relkit/accounting/attempts.py",
        "resumed_at = min(resumed_at, begin)",
        "resumed_at = begin",
        _ACCOUNT,
    ),
    # Steps that relkit numbers from 0 are compared over a restart.
    Break(
        "relkit/accounting/account.py",
        "if before.is_counted or after.is_counted:",
        "if False:",
        _ACCOUNT,
    ),
    # The load is counted twice.
    Break(
        "relkit/accounting/account.py",
        "works_s - begun_s - load_s",
        "works_s - begun_s",
        _ACCOUNT,
    ),
    # The signal that ends a launcher is taken for the cause of the restart before.
    Break(
        "relkit/accounting/account.py",
        "            if span.attempt is not None:\n                spans.append(_Span(record,",
        "            if True:\n                spans.append(_Span(record,",
        _ACCOUNT,
    ),
    # The time by which a fault was noticed is no part of the recovery.
    Break(
        "relkit/accounting/account.py",
        "spans.append(_Span(record, record.at_s - record.seconds))",
        "spans.append(_Span(record, record.at_s))",
        _ACCOUNT,
    ),
    # A journal that is cut off looks whole.
    Break(
        "relkit/accounting/read_journal.py",
        'problem = "its last line is cut off" if rest else ""',
        'problem = ""',
        _JOURNAL,
    ),
    # The report at the end and `relkit status` round different figures.
    Break("relkit/accounting/journal.py", "record = record.rounded()", "pass", _JOURNAL),
    # A full journal has no room for the end of the run.
    Break(
        "relkit/accounting/journal.py",
        "room = MAX_BYTES if is_end else MAX_BYTES - _END_BYTES",
        "room = MAX_BYTES - _END_BYTES",
        _JOURNAL,
    ),
    # A write that was cut off stays in the file, and the next record is joined to it.
    Break(
        "relkit/accounting/journal.py",
        "os.ftruncate(self._descriptor, begin_bytes)",
        "pass",
        _JOURNAL,
    ),
    # The journals of launchers that run are removed.
    # A launcher that starts removes the folder of one that starts with it.
    Break("relkit/accounting/journal_folder.py", "    os.utime(folder)\n", "", _JOURNAL),
    Break(
        "relkit/accounting/journal_folder.py",
        "(folder, *(each.path for each in files))",
        "[each.path for each in files]",
        _JOURNAL,
    ),
    Break("relkit/accounting/suspicions.py", "elif not was_present:", "elif False:", _ACCOUNT),
    Break(
        "relkit/accounting/suspicions.py",
        "was_present = present.pop(record.number, None) is not None",
        "was_present = False",
        _ACCOUNT,
    ),
    Break(
        "relkit/accounting/journal_folder.py",
        "if folder != mine and not any(each.is_live for each in files):",
        "if folder != mine:",
        _JOURNAL,
    ),
    # A launcher that was killed looks as if it ran.
    Break(
        "relkit/accounting/report.py",
        "if not journal.is_live:",
        "if False:",
        _STATUS,
    ),
    # An earlier run of the same job id is taken for part of the newest.
    Break(
        "relkit/accounting/report.py",
        "if run and not each.is_live and _last_s(each) < begin_s:",
        "if False:",
        _STATUS,
    ),
    # What a recorder says of another time is believed.
    Break(
        "relkit/launch/accounting/progress.py",
        "is_sane &= end_ns / 1e9 <= self._clock()",
        "pass",
        _ACCOUNTS,
    ),
    # The signal that asks the launcher to end is lost in its accounts.
    Break(
        "relkit/launch/accounting/accounts.py",
        "            # How torch's handler asks the launcher to end, wherever it happens to be.\n"
        "            raise",
        "            return",
        _ACCOUNTS,
    ),
    # A job is said to be back while its first step still runs.
    Break(
        "relkit/launch/accounting/accounts.py",
        "progress.operation_s is not None and not self._has_steps",
        "progress.operation_s is not None",
        _ACCOUNTS,
    ),
    # Node 0 counts a worker that was killed on another node as a node that has come.
    Break(
        "relkit/launch/accounted_agent.py",
        "self.accounts.fault(fault_elsewhere(told) if told else fault)",
        "self.accounts.fault(fault)",
        _AGENT,
    ),
    # A hang that has passed is the cause of a later failure.
    Break(
        "relkit/launch/accounted_agent.py",
        "        if not self.services.monitor.hung:\n            self._hung_since_s = None",
        "        if not self.services.monitor.hung:\n            pass",
        _AGENT,
    ),
)
