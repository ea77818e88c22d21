"""One attempt of the job, as the parts that keep and persist its slots see it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from relkit.launch.job.exchange import Mailbox


@dataclass(frozen=True, slots=True)
class SlotAttempt:
    """One attempt of the job, as this node sees it.

    Args:
        job_id: of the launcher; ranks: of this node; world_size: ranks of the job.
        mailbox: to the other nodes, with a prefix of its own.
        holds_store: this launcher hosts the store of the mailbox.
    """

    job_id: str
    ranks: Collection[int]
    world_size: int
    mailbox: Mailbox
    holds_store: bool = False
