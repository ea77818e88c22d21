"""How a node leaves a job that goes on without it."""

from __future__ import annotations

import signal

from torch.distributed.elastic.multiprocessing import SignalException

from relkit.errors import RelkitError


class LeavesJob(SignalException):
    """This node leaves the job: it failed the network check, or it slows the job down.

    It looks like the end by a signal, because torch closes the rendezvous for all nodes when an
    agent fails, and the others could not meet again.
    """

    def __init__(self, why: RelkitError) -> None:
        super().__init__(str(why), signal.SIGTERM)
        self.why = why
