"""One attempt of the job, as the parts that keep and persist its slots see it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from relkit.launch.job.exchange import Mailbox, MemoryMailbox


@dataclass(frozen=True, slots=True)
class SlotAttempt:
    """One attempt of the job, as this node sees it.

    Args:
        job_id: of the launcher; ranks: of this node; world_size: ranks of the job.
        mailbox: to the other nodes, with a prefix of its own.
        holds_store: this launcher hosts the store of the mailbox.
        mailbox_for: makes another mailbox, with a prefix; address: finds this node's address on
            the way to the others.
        key: that all nodes have and that is not in the store; b"" where there is none.
    """

    job_id: str
    ranks: Collection[int]
    world_size: int
    mailbox: Mailbox
    holds_store: bool = False
    mailbox_for: Callable[[str], Mailbox] = lambda _prefix: MemoryMailbox()
    address: Callable[[], str] = lambda: ""
    key: bytes = field(default=b"", repr=False)
