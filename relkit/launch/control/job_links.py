"""A launcher's links over the attempts of a job: each rendezvous has its own."""

from __future__ import annotations

from relkit.launch.control.links import Links
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import LedMailbox, MemoryMailbox
from relkit.launch.job.settings import Log
from relkit.log_lines import warning

# A report of the attempt before may still be on its way.
_KEPT = 2


class JobLinks:
    """Makes them, and ends them.

    Args:
        log: writes one line to the terminal.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._open: list[Links] = []

    def begin(self, attempt: Attempt) -> LedMailbox:
        """Join the others in the background; a job of one node has nobody to join.

        Args:
            attempt: that is about to start.
        """
        while len(self._open) >= _KEPT:
            self._open.pop(0).close()
        mailbox = attempt.mailbox("links")
        if mailbox.nodes == 1:
            return MemoryMailbox()
        try:
            self._open.append(Links(attempt, mailbox, self._log))
        except OSError as error:
            line = f"no links to the other launchers: {error}; this node judges only its own"
            self._log(warning(line))
            return MemoryMailbox()
        return self._open[-1]

    def close(self) -> None:
        """Leave the others."""
        while self._open:
            self._open.pop().close()
