"""One attempt of a job, as the straggler detection of one node sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relkit.launch.job.exchange import Mailbox
from relkit.launch.job.settings import LocalRank


@dataclass(frozen=True, slots=True)
class JobAttempt:
    """One start of the job's workers.

    Args:
        job_id: the run; world_size: ranks in the job.
        job_dir: folder of the recorder files; None where the job runs without the hook.
        mailbox: to the other nodes, for this thread alone.
        ranks: this node's ranks; host: its name.
        restarts_left: how often workers may be started again.
        holds_store: the server of the rendezvous store is in this launcher.
    """

    job_id: str
    world_size: int
    job_dir: Path | None
    mailbox: Mailbox
    ranks: Sequence[LocalRank]
    host: str = "this host"
    restarts_left: int = 0
    holds_store: bool = False
