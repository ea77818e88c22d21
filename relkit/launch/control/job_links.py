"""A launcher's links over the attempts of a job: each rendezvous has its own.

So nothing that was meant for another attempt can come: its links have another key.
"""

from __future__ import annotations

from relkit.launch.control.links import Links
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import LedMailbox, Mailbox, MemoryMailbox
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
        # Those of attempts.
        self._open: list[Links] = []

        self._now: Links | None = None

    def begin(self, attempt: Attempt, mailbox: Mailbox) -> None:
        """Join the others in the background; a job of one node has nobody to join.

        What is left to be said of the attempt before goes by its own links until `starts`, however
        often the nodes meet until then.

        Args:
            attempt: that is about to start; mailbox: to the others, in the store.
        """
        self._close_unused()
        if mailbox.nodes == 1:
            return
        try:
            self._now = Links(attempt, mailbox, self._log)
        except OSError as error:
            line = f"no links to the other launchers: {error}; this node judges only its own"
            self._log(warning(line))

    def starts(self) -> None:
        """Workers start next, with these links: those before the last attempt are closed."""
        if self._now is not None and self._now not in self._open:
            self._open.append(self._now)
        while len(self._open) > _KEPT:
            self._open.pop(0).close()

    @property
    def led(self) -> LedMailbox:
        """To the launchers of this rendezvous, one of which leads."""
        return MemoryMailbox() if self._now is None else self._now

    def mailbox(self, purpose: str) -> Mailbox:
        """See Attempt.mailbox."""
        return MemoryMailbox() if self._now is None else self._now.mailbox(purpose)

    def close(self) -> None:
        """Leave the others."""
        self._close_unused()
        while self._open:
            self._open.pop().close()

    def _close_unused(self) -> None:
        """The nodes have met in vain: some have left."""
        links, self._now = self._now, None
        if links is not None and links not in self._open:
            links.close()
